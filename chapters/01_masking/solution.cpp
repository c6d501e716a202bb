#include "chapters/01_masking/exercise.hpp"

namespace exercise {

// Exercise 1.1 — 0 * -inf is NaN. Start from -inf everywhere and let triu write the zeros.
Matrix mask_by_product(std::size_t seq_len) {
    const Matrix all_masked = xt::ones<Real>({seq_len, seq_len}) * -infinity;
    return xt::triu(all_masked, 1);
}

// Exercise 1.2 — the first future key is t + 1. Starting at t masks each token's own key, and
// leaves row 0 fully masked.
Matrix mask_by_loops(std::size_t seq_len) {
    Matrix mask = xt::zeros<Real>({seq_len, seq_len});
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = t + 1; s < seq_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.3 — query 0 is not position 0: kv_len - query_len positions precede it.
Matrix mask_for_new_queries(std::size_t query_len, std::size_t kv_len) {
    const Matrix all_masked = xt::ones<Real>({query_len, kv_len}) * -infinity;
    return xt::triu(all_masked, static_cast<int>(kv_len - query_len + 1));
}

// Exercise 1.4 — the causal mask, with -inf also for keys at a distance of window or more.
// Written as s + window <= t, because t - window would wrap around below 0.
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window) {
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = 0; s + window <= t; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.5 — the causal mask with zeros in its upper left square.
Matrix prefix_mask(std::size_t seq_len, std::size_t prefix_len) {
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < prefix_len; ++t)
        for (std::size_t s = 0; s < prefix_len; ++s) mask(t, s) = 0;
    return mask;
}

}  // namespace exercise
