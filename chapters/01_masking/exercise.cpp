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

// Exercise 1.2 — find the bug. Look at row 0: which keys may the first token attend to?
Matrix mask_by_loops(std::size_t seq_len) {
    Matrix mask = xt::zeros<Real>({seq_len, seq_len});
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = t; s < seq_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.3 — find the bug. With as many queries as keys the mask is right. With one query
// and five keys it lets the newest token attend to the oldest one only.
Matrix mask_for_new_queries(std::size_t query_len, std::size_t kv_len) {
    const Matrix all_masked = xt::ones<Real>({query_len, kv_len}) * -infinity;
    return xt::triu(all_masked, 1);
}

// Exercise 1.4 — write sliding_window_mask: a token attends to itself and to the window - 1
// tokens before it only. (Mistral 7B v0.1 uses such a mask in every layer.)
Matrix sliding_window_mask([[maybe_unused]] std::size_t seq_len,
                           [[maybe_unused]] std::size_t window) {
    TODO("sliding_window_mask");
}

// Exercise 1.5 — write prefix_mask: the mask is 0 between any two of the first prefix_len
// tokens (bidirectional attention); later tokens use causal attention. (A prefix LM, as in the
// T5 paper.)
Matrix prefix_mask([[maybe_unused]] std::size_t seq_len,
                   [[maybe_unused]] std::size_t prefix_len) {
    TODO("prefix_mask");
}

}  // namespace exercise
