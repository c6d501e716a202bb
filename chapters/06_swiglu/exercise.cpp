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

// Exercise 6.2 — find the bug. A model that is trained with this SwiGLU works well. Weights
// that were trained with another implementation give wrong outputs.
Tensor3 gated_product(const Tensor3& gate, const Tensor3& up) {
    return gate * activate(SiLU, up);
}

// Exercise 6.3 — find the bug. 10922 is rounded up to 11008, as it should be for Llama-2-7B.
// But Mini-LLM's 1536, with a multiple of 32, becomes 1568, and the shapes of its weights do
// not match.
std::size_t padded_width(std::size_t width, std::size_t multiple_of) {
    return (width / multiple_of + 1) * multiple_of;
}

// Exercise 6.4 — find the bug. The inputs of the next layer are smaller in training than at
// inference.
Tensor3 dropped(const Tensor3& states, Real probability, Generator& generator) {
    Tensor3 result = states;
    for (Real& element : result)
        if (generator.next_uniform() < probability) element = 0;
    return result;
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
