// Chapter 20, file 4 of 8: the layer: short convolution, gates, state, norm and output gate.
#pragma once

#include <optional>

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "chapters/17_long_context/pattern_attention.hpp"
#include "chapters/20_linear_attention/chunked.hpp"

namespace llm {

// What a layer keeps of a sequence, whatever its length.
struct LinearCache {
    Tensor3 conv_inputs = xt::zeros<Real>({0, 0, 0});  // (B, J - 1, Cc): the last ones
    Tensor4 state = xt::zeros<Real>({0, 0, 0, 0});     // (B, Hv, Dk, Dv)
    std::size_t seq_len = 0;

    // A state cannot go back: returns false, and nothing changes, unless `count` tokens are
    // what it has.
    bool crop(std::size_t count) const { return count == seq_len; }
};

// The decay of a value head: g = -e^A_log · softplus(a + dt_bias), where a is computed from the
// token. Source: "Mamba-2" (Dao and Gu, 2024).
struct Decay {
    Linear in_proj_a;       // (Hv, C)
    Vector A_log, dt_bias;  // (Hv)
};

// With all its parts, Gated DeltaNet. Value head h uses the query and key of head h / (Hv /
// Hk). Source: Hugging Face, modeling_qwen3_next.py, Qwen3NextGatedDeltaNet.
struct LinearAttention {
    std::size_t num_key_heads = 1, num_value_heads = 1;  // Hk, Hv
    UpdateRule rule = UpdateRule::delta;
    Linear in_proj_qkv;                            // (Cc, C): Cc = 2 Hk Dk + Hv Dv
    Linear in_proj_z;                              // (Hv*Dv, C): output gate
    std::optional<Linear> in_proj_b;               // (Hv, C): β = sigmoid(b); none: 1
    std::optional<Decay> decay;                    // none: nothing is forgotten
    Matrix conv1d;                                 // (Cc, J)
    RMSNorm norm;                                  // (Dv), of each head
    Linear out_proj;                               // (C, Hv*Dv)
    static constexpr std::size_t chunk_size = 64;  // of the published code

    std::size_t value_head_dim() const { return norm.weight.size(); }  // Dv
    std::size_t key_head_dim() const {                                 // Dk
        return (conv1d.shape(0) - num_value_heads * value_head_dim()) / (2 * num_key_heads);
    }

    using Inputs = PatternAttentionInputs;  // tables are not used: the order of the tokens is
                                            // in the state
    using Cache = LinearCache;
    Cache make_cache() const { return {}; }

    // There are no attention weights: attentions is empty. Throws ValueError if the shapes do
    // not match, or if the position ids do not begin after the cached tokens.
    AttentionLayer::Output operator()(const Tensor3& hidden_states,          // (B, T, C)
                                      const PatternAttentionInputs& inputs,  // T positions
                                      LinearCache* cache = nullptr) const;
};

// Under the names of config.json, without linear_.
struct LinearSizes {
    std::size_t hidden_size = 0;                         // C
    std::size_t num_key_heads = 1, num_value_heads = 1;  // Hk, Hv
    std::size_t key_head_dim = 0, value_head_dim = 0;    // Dk, Dv
    std::size_t conv_kernel_dim = 4;                     // J
};
struct LinearVariant {
    UpdateRule rule = UpdateRule::delta;
    bool has_beta = true, has_decay = true;
};
// Initializes with PyTorch's defaults, and decays as Mamba-2: e^A_log between 1 and 16, and
// softplus(dt_bias) between 0.001 and 0.1, uniform in its logarithm. Throws ValueError if a
// size is 0, or if Hk does not divide Hv.
LinearAttention make_linear_attention(const LinearSizes& sizes, const LinearVariant& variant,
                                      Real rms_norm_eps, Generator& generator);

// The parts of the layer, in this order. The backward pass calls them, too.
QueriesKeysValues split_qkv(const LinearAttention& layer,
                            const Tensor3& mixed);  // (B, T, Cc) -> (B, Hk, T, Dk) twice,
                                                    //              (B, Hv, T, Dv)
// x / sqrt(Σx² + eps) along the last axis: length 1.
Tensor4 l2_normalize(const Tensor4& states, Real eps = Real(1e-6));  // (B, H, T, D)
// Queries and keys of length 1, repeated for the value heads; queries also times 1/√Dk.
QueriesKeysValues normalize_and_repeat(const LinearAttention& layer,
                                       const QueriesKeysValues& heads);  // -> Hv heads each
// g and β of all tokens and value heads.
struct StateGates {
    Tensor3 log_decay, beta;  // (B, T, Hv)
};
StateGates state_gates(const LinearAttention& layer, const Tensor3& hidden_states);
HeadInputs head_inputs(const QueriesKeysValues& heads, const StateGates& gates, std::size_t b,
                       std::size_t h);
// Updates the state of each head with all tokens, and returns what they read: (B, Hv, T, Dv).
// One token is computed in the recurrent form, several in the chunked form.
Tensor4 update_states(const LinearAttention& layer,
                      const QueriesKeysValues& heads,  // (B, Hv, T, Dk) twice, (B, Hv, T, Dv)
                      const StateGates& gates,
                      Tensor4& state);  // (B, Hv, Dk, Dv)
// norm(context) · silu(z): first the norm of each head, then the gate.
Tensor3 normalize_and_gate(const RMSNorm& norm,
                           const Tensor3& context,  // (B, T, Hv*Dv)
                           const Tensor3& z);       // (B, T, Hv*Dv)
Real softplus(Real x);                              // log(1 + e^x)

// The pre-norm block of chapter 08 with this layer.
using LinearBlock = PreNormBlockWith<RMSNorm, GatedMlp, LinearAttention>;

}  // namespace llm
