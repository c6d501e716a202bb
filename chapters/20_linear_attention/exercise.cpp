#include "chapters/20_linear_attention/exercise.hpp"

#include "common/system/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 20.1 — predict: four tokens write the numbers 5, 3, 7 and 2 (Dv = 1) at the keys
// (1, 0), (0, 1), (1, 0) and (1, 0), with β = 1 and no decay. What does the query (1, 0) read
// after them with the additive rule, with the delta rule, and with the delta rule and β = 0.5
// for all?
Vector predicted_reads() {
    TODO("predicted_reads");
    // return {?, ?, ?};
}

// Exercise 20.2 — predict: a layer of softmax attention has 2 key/value heads of 64 features; a
// layer of linear attention has 4 key heads and 8 value heads of 32 features, and a convolution
// over 4 tokens. From how many tokens on does the first keep more numbers than the second?
std::size_t predicted_length() {
    TODO("predicted_length");
    // return ?;
}

// Exercise 20.3 — find the bug. The prompt and the first token of the answer have the logits of
// the reference. From the second token on they differ, and the text soon repeats itself.
ConvolutionStep convolution_step(const Matrix& earlier, const Vector& input,
                                 const Matrix& weight) {
    const auto [width, kernel_size] = dims(weight);
    ConvolutionStep step{xt::zeros<Real>({width}), earlier};
    for (std::size_t w = 0; w < width; ++w) {
        for (std::size_t j = 0; j + 1 < kernel_size; ++j)
            step.output(w) += weight(w, j) * earlier(j, w);
        step.output(w) += weight(w, kernel_size - 1) * input(w);
    }
    for (std::size_t j = 0; j + 2 < kernel_size; ++j)
        for (std::size_t w = 0; w < width; ++w) step.earlier(j + 1, w) = earlier(j, w);
    for (std::size_t w = 0; w < width; ++w) step.earlier(0, w) = input(w);
    return step;
}

// Exercise 20.4 — write retention, with matrix products and one loop over the elements of a
// matrix: no state, and no loop over earlier tokens for each token.
Matrix retention([[maybe_unused]] const Matrix& queries, [[maybe_unused]] const Matrix& keys,
                 [[maybe_unused]] const Matrix& values, [[maybe_unused]] Real decay) {
    TODO("retention");
}

// Exercise 20.5 — write the delta rule in chunks. First the matrix A of the linear equations
// (I + A) written = right side: A_ij = β_i (k_i · k_j) where j < i, else 0.
Matrix overlaps_of_keys([[maybe_unused]] const Matrix& keys,
                        [[maybe_unused]] const Vector& beta) {
    TODO("overlaps_of_keys");
}

// Then what the tokens of a chunk write, by forward substitution. The right side is
// β_i (v_i - Sᵀk_i), where S is the state before the chunk.
Matrix values_to_write([[maybe_unused]] const Matrix& keys,
                       [[maybe_unused]] const Matrix& values,
                       [[maybe_unused]] const Vector& beta,
                       [[maybe_unused]] const Matrix& state) {
    TODO("values_to_write");
}

// Last, all chunks, from a state of zeros; the last one may be shorter.
HeadOutput delta_rule_in_chunks([[maybe_unused]] const Matrix& queries,
                                [[maybe_unused]] const Matrix& keys,
                                [[maybe_unused]] const Matrix& values,
                                [[maybe_unused]] const Vector& beta,
                                [[maybe_unused]] std::size_t chunk_size) {
    TODO("delta_rule_in_chunks");
}

// Exercise 20.6 — predict: with β = 2, a token reflects the state. The state returns 1 for the
// key (1, 0); then three tokens have this key, the value 0 and β = 2. What does it return for
// the key after each of them?
Vector predicted_reflections() {
    TODO("predicted_reflections");
    // return {?, ?, ?};
}

}  // namespace exercise
