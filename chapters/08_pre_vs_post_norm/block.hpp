// Chapter 08 — Where does the norm stand?
#pragma once

#include <functional>

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

namespace llm {

// What attention needs beside the hidden states: where each token stands, and whom it may see.
// causal_placement makes it for sequences that begin at position 0, with P = T.
struct Placement {
    RotaryTable table;   // (P, D/2)
    IdMatrix positions;  // (B, T)
    Tensor4 mask;        // (B, 1, T, T); with a cache (10) more columns
};
Placement causal_placement(const Config& config, std::size_t batch_size, std::size_t seq_len);

// The two functions of a block. All blocks below have them, and differ in where norms stand.
struct Sublayers {
    AttentionLayer self_attn;
    GatedMlp mlp;

    // (B, T, C) -> (B, T, C)
    Tensor3 attend(const Tensor3& hidden_states, const Placement& placement) const;
};

// Draws q, k, v, o, then gate, down, up (SwiGLU without bias).
Sublayers make_sublayers(const Config& config, std::size_t intermediate_size,
                         Generator& generator);

// A block maps (B, T, C) to (B, T, C). The comment shows what happens to the stream x.

// x + f(norm(x)). Source: GPT-2; Llama, Qwen.
struct PreNormBlock : Sublayers {
    RMSNorm attention_norm, ffn_norm;
    Tensor3 operator()(const Tensor3& hidden_states, const Placement& placement) const;
};

// norm(x + f(x)). Source: Vaswani et al., 2017, section 3.1 (with LayerNorm); BERT.
struct PostNormBlock : Sublayers {
    RMSNorm attention_norm, ffn_norm;
    Tensor3 operator()(const Tensor3& hidden_states, const Placement& placement) const;
};

// x + norm(f(x)). Source: "Swin Transformer V2" (Liu et al., 2021); OLMo 2.
struct ResPostNormBlock : Sublayers {
    RMSNorm attention_norm, ffn_norm;
    Tensor3 operator()(const Tensor3& hidden_states, const Placement& placement) const;
};

// x + norm(f(norm(x))). Source: "CogView" (Ding et al., 2021); Gemma 2.
struct SandwichBlock : Sublayers {
    RMSNorm attention_norm, attention_output_norm, ffn_norm, ffn_output_norm;
    Tensor3 operator()(const Tensor3& hidden_states, const Placement& placement) const;
};

// x + attention(norm(x)) + mlp(norm(x)): one norm, both functions read the same. Source: GPT-J
// (Wang and Komatsuzaki, 2021); PaLM.
struct ParallelBlock : Sublayers {
    RMSNorm norm;
    Tensor3 operator()(const Tensor3& hidden_states, const Placement& placement) const;
};

// Any of them, with norms that have weights of one and the eps of the configuration. Throws
// std::invalid_argument if there is no such arrangement.
enum class Arrangement { pre_norm, post_norm, res_post_norm, sandwich, parallel };
using Block = std::function<Tensor3(const Tensor3&, const Placement&)>;
Block arranged(Arrangement arrangement, const Sublayers& sublayers);

// Makes what the sublayers add smaller by 1/√(2L), so that the 2L summands of L layers together
// are as large as one. Throws ShapeError if L is 0. Source: GPT-2 (Radford et al., 2019),
// section 2.3.
Sublayers scaled_for_depth(Sublayers sublayers, std::size_t num_hidden_layers);

}  // namespace llm
