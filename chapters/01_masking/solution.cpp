#include "chapters/01_masking/exercise.hpp"

namespace exercise {

// Exercise 1.1 — the mask leaves the keys 0 and 1. Their exponentials are e^0 = 1 and
// e^(ln 3) = 3, and the sum is 4.
Vector predicted_weights() { return {0.25, 0.75, 0, 0, 0}; }

// Exercise 1.2 — the first of the four queries has position 3, so it may attend to the keys 0
// to 3, which are 4; each later query may attend to one key more.
Vector predicted_key_counts() { return {4, 5, 6, 7}; }

// Exercise 1.3 — the softmax of a query runs over its keys, which are the columns of its row:
// both reductions are over axis 1. Over axis 0 the columns sum to 1, and future queries change
// the weights of past ones.
Matrix weights_of_sequence(const Matrix& scores, const Matrix& mask) {
    const Matrix masked_scores = scores + mask;
    const Matrix maxima = xt::amax(masked_scores, {1}, xt::keep_dims);
    const Matrix exponentials = xt::exp(masked_scores - maxima);
    const Matrix sums = xt::sum(exponentials, {1}, xt::keep_dims);
    return exponentials / sums;
}

// Exercise 1.4 — keys of another document are masked, whether it is a later or an earlier one.
// The comparison > masked only the later ones, which the causal mask had masked already.
Matrix document_mask(const IdVector& document_ids) {
    const std::size_t seq_len = document_ids.size();
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = 0; s < seq_len; ++s)
            if (document_ids(s) != document_ids(t)) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.5 — the causal mask, with -inf also for keys at a distance of window or more.
// Written as s + window <= t, because t - window would wrap around below 0.
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window) {
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = 0; s + window <= t; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.6 — the causal mask with zeros in its upper left square.
Matrix prefix_mask(std::size_t seq_len, std::size_t prefix_len) {
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < prefix_len; ++t)
        for (std::size_t s = 0; s < prefix_len; ++s) mask(t, s) = 0;
    return mask;
}

}  // namespace exercise
