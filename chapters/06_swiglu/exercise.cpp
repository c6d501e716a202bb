#include "chapters/06_swiglu/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 6.1 — find the bug. All shapes match, but the text that the model generates
// is nonsense.
GatedMlp from_meta(const Matrix& w1, const Matrix& w2, const Matrix& w3) {
    GatedMlp mlp;
    mlp.up_proj = {w1, std::nullopt};
    mlp.down_proj = {w2, std::nullopt};
    mlp.gate_proj = {w3, std::nullopt};
    return mlp;
}

// Exercise 6.2 — predict: the product silu(gate) * up for gates of 0, 10 and -10, and ups of 5,
// 2 and 3.
Vector predicted_product() {
    TODO("predicted_product");
    // return {?, ?, ?};
}

// Exercise 6.3 — predict: the intermediate size of Llama's rule, 8/3 of the hidden size,
// rounded down and then up to a multiple: for a hidden size of 768 and multiples of 256, and
// for 1000 and multiples of 64.
Vector predicted_intermediate_sizes() {
    TODO("predicted_intermediate_sizes");
    // return {?, ?};
}

// Exercise 6.4 — predict: the number of weights of two MLPs with a hidden size of 96: a gated
// one with an intermediate size of 256, and a plain one with 4 * 96.
Vector predicted_parameters() {
    TODO("predicted_parameters");
    // return {?, ?};
}

// Exercise 6.5 — write geglu: SwiGLU's product with the exact GELU instead of SiLU. Which of
// the two tensors is passed to the activation function?
Tensor3 geglu([[maybe_unused]] const Tensor3& gate, [[maybe_unused]] const Tensor3& up) {
    TODO("geglu");
}

// Exercise 6.6 — write reglu: the product with ReLU, and the density of the activated gate.
Reglu reglu([[maybe_unused]] const Tensor3& gate, [[maybe_unused]] const Tensor3& up) {
    TODO("reglu");
}

// Exercise 6.7 — write interleaved_product: the fused weight of gpt-oss, in which the rows of
// gate and up alternate. Compute one matrix product, then separate even and odd
// features.
Tensor3 interleaved_product([[maybe_unused]] const Linear& gate_up_proj,
                            [[maybe_unused]] const Tensor3& hidden_states) {
    TODO("interleaved_product");
}

// Exercise 6.8 — write clamped_swiglu, the variant of gpt-oss: gate is clamped from above at
// the limit, up is clamped at -limit and limit, and the result is swish(gate, 1.702) * (up +
// 1). (x sigmoid(1.702 x) approximates GELU; the limit of gpt-oss is 7.)
Tensor3 clamped_swiglu([[maybe_unused]] const Tensor3& gate, [[maybe_unused]] const Tensor3& up,
                       [[maybe_unused]] Real limit) {
    TODO("clamped_swiglu");
}

}  // namespace exercise
