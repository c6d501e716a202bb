#include "chapters/01_masking/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 1.1 — find the bug. The upper triangle is 1 and the rest 0, so this product should
// be -inf above the diagonal and 0 elsewhere. It is not.
Matrix mask_by_product(std::size_t seq_len) {
    const Matrix ones = xt::ones<Real>({seq_len, seq_len});
    const Matrix future = xt::triu(ones, 1);
    return future * -infinity;
}

// Exercise 1.2 — find the bug. Look at row 0: what does the first token see?
Matrix mask_by_loops(std::size_t seq_len) {
    Matrix mask = xt::zeros<Real>({seq_len, seq_len});
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = t; s < seq_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.3 — find the bug. With as many queries as keys it is right. With one query and
// five keys it lets the newest token see the oldest one only.
Matrix mask_for_new_queries(std::size_t query_len, std::size_t kv_len) {
    const Matrix all_hidden = xt::ones<Real>({query_len, kv_len}) * -infinity;
    return xt::triu(all_hidden, 1);
}

// Exercise 1.4 — write sliding_window_mask: causal, but a token sees itself and the window - 1
// tokens before it, and nothing older. (The first Mistral 7B reads its past this way.)
Matrix sliding_window_mask([[maybe_unused]] std::size_t seq_len,
                           [[maybe_unused]] std::size_t window) {
    TODO("sliding_window_mask");
}

// Exercise 1.5 — write prefix_mask: the first prefix_len tokens are a question that is known
// in full, so all of them see each other; every later token is causal. (T5's prefix variant.)
Matrix prefix_mask([[maybe_unused]] std::size_t seq_len,
                   [[maybe_unused]] std::size_t prefix_len) {
    TODO("prefix_mask");
}

}  // namespace exercise
