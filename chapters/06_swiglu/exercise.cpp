#include "chapters/06_swiglu/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 6.1 — find the bug. Every shape fits, and the text that this model writes is
// nonsense.
GatedMlp from_meta(const Matrix& w1, const Matrix& w2, const Matrix& w3) {
    GatedMlp mlp;
    mlp.up_proj = {w1, std::nullopt};
    mlp.down_proj = {w2, std::nullopt};
    mlp.gate_proj = {w3, std::nullopt};
    return mlp;
}

// Exercise 6.2 — find the bug. Somebody wrote SwiGLU from memory. A model that is trained this
// way works well; weights that were trained elsewhere do not.
Tensor3 gated_product(const Tensor3& gate, const Tensor3& up) {
    return gate * activate(silu, up);
}

// Exercise 6.3 — find the bug. 10922 becomes 11008, as it should for Llama-2-7B. But Mini-LLM's
// 1536, with a multiple of 32, becomes 1568, and its weights do not fit.
std::size_t padded_width(std::size_t width, std::size_t multiple_of) {
    return (width / multiple_of + 1) * multiple_of;
}

// Exercise 6.4 — find the bug. Each layer after this one gets inputs that are smaller in
// training than when the model is used.
Tensor3 dropped(const Tensor3& states, Real probability, Generator& generator) {
    Tensor3 kept = states;
    for (Real& number : kept)
        if (generator.next_uniform() < probability) number = 0;
    return kept;
}

// Exercise 6.5 — write geglu: as SwiGLU, with the exact gelu instead of silu. Which of the two
// tensors does it bend?
Tensor3 geglu([[maybe_unused]] const Tensor3& gate, [[maybe_unused]] const Tensor3& up) {
    TODO("geglu");
}

// Exercise 6.6 — write reglu, and count how much a relu lets pass at all.
Reglu reglu([[maybe_unused]] const Tensor3& gate, [[maybe_unused]] const Tensor3& up) {
    TODO("reglu");
}

// Exercise 6.7 — write interleaved_product: gpt-oss fuses its matrices like this, gate and up
// row by row in turn. One product, then take every second number.
Tensor3 interleaved_product([[maybe_unused]] const Linear& gate_up_proj,
                            [[maybe_unused]] const Tensor3& hidden_states) {
    TODO("interleaved_product");
}

// Exercise 6.8 — write clamped_swiglu, gpt-oss's variant: the gate is cut off above the limit,
// up is cut off at both limits, and the result is swish(gate, 1.702) * (up + 1). (x
// sigmoid(1.702 x) is an approximation of gelu; gpt-oss has a limit of 7.)
Tensor3 clamped_swiglu([[maybe_unused]] const Tensor3& gate, [[maybe_unused]] const Tensor3& up,
                       [[maybe_unused]] Real limit) {
    TODO("clamped_swiglu");
}

}  // namespace exercise
