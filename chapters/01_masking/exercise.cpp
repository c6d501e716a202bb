#include "chapters/01_masking/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 1.1 — predict: the attention weights of the query at position 1 of 5 tokens, whose
// scores are 0, ln 3, 5, 7 and 9. The causal mask is added. Two decimals.
Vector predicted_weights() {
    TODO("predicted_weights");
    // return {?, ?, ?, ?, ?};
}

// Exercise 1.2 — predict: 4 queries are the second chunk of a text; the first chunk has 3
// tokens. The keys are those of all 7. To how many keys may each of the 4 queries attend?
Vector predicted_key_counts() {
    TODO("predicted_key_counts");
    // return {?, ?, ?, ?};
}

// Exercise 1.3 — find the bug. Models trained with these attention weights do not learn.
Matrix weights_of_sequence(const Matrix& scores, const Matrix& mask) {
    const Matrix masked_scores = scores + mask;
    const Matrix maxima = xt::amax(masked_scores, {0}, xt::keep_dims);
    const Matrix exponentials = xt::exp(masked_scores - maxima);
    const Matrix sums = xt::sum(exponentials, {0}, xt::keep_dims);
    return exponentials / sums;
}

// Exercise 1.4 — find the bug. Several documents are packed into one sequence; document_ids
// says to which document each token belongs. The mask is 0 for keys of the same document that
// are not in the future, and -inf for all others.
Matrix document_mask(const IdVector& document_ids) {
    const std::size_t seq_len = document_ids.size();
    Matrix mask = causal_mask(seq_len, seq_len);
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = 0; s < seq_len; ++s)
            if (document_ids(s) > document_ids(t)) mask(t, s) = -infinity;
    return mask;
}

// Exercise 1.5 — write sliding_window_mask: a token attends to itself and to the window - 1
// tokens before it only. (Mistral 7B v0.1 uses such a mask in every layer.)
Matrix sliding_window_mask([[maybe_unused]] std::size_t seq_len,
                           [[maybe_unused]] std::size_t window) {
    TODO("sliding_window_mask");
}

// Exercise 1.6 — write prefix_mask: the mask is 0 between any two of the first prefix_len
// tokens (bidirectional attention); later tokens use causal attention. (A prefix LM, as in the
// T5 paper.)
Matrix prefix_mask([[maybe_unused]] std::size_t seq_len,
                   [[maybe_unused]] std::size_t prefix_len) {
    TODO("prefix_mask");
}

}  // namespace exercise
