// The settings of one layer of a published model, under the names of config.json where it has
// one. A family makes one for each layer (family.hpp), and family_model.cpp builds the layers.
#pragma once

#include <optional>
#include <variant>

#include "chapters/06_swiglu/activations.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/score_mod.hpp"
#include "chapters/17_long_context/yarn.hpp"
#include "chapters/18_experts/mixture_of_experts.hpp"
#include "chapters/19_latent_attention/latent_attention.hpp"
#include "chapters/20_linear_attention/gated_convolution.hpp"
#include "chapters/20_linear_attention/linear_attention.hpp"

namespace llm::models {

// The RoPE of a layer. Layers with equal parameters share a rotary table.
struct RopeParameters {
    Real rope_theta = 10'000;
    std::size_t head_dim = 0;    // D
    std::size_t rotary_dim = 0;  // the first features of each head, which are rotated
    std::variant<std::monostate, Llama3Scaling, FrequencyFactors, YarnScaling, LongRopeScaling>
        scaling = {};

    bool operator==(const RopeParameters&) const = default;
};
// Throws ValueError as the functions of chapters 04 and 17 that it calls.
RotaryTable make_rotary_table(const RopeParameters& rope, std::size_t num_positions);  // P

// Attention of chapter 17: all layers with queries, keys and values of D features.
struct AttentionConfig {
    std::size_t num_attention_heads = 1, num_key_value_heads = 1, head_dim = 0;  // H, Hkv, D
    AttentionPattern pattern = FullAttention{};
    std::optional<RopeParameters> rope = RopeParameters{};  // none: NoPE
    QKNormType qk_norm = QKNormType::none;
    AttentionBias bias = AttentionBias::none;
    double scale = 1;  // of the scores: 1/√D
    std::optional<Real> attn_logit_softcapping = std::nullopt;
    std::optional<TemperatureTuning> temperature_tuning = std::nullopt;
    bool sinks = false;        // a learned logit for each head
    bool output_gate = false;  // a projection of the input, (H*D, C)
};

// Latent attention of chapter 19.
struct LatentConfig {
    LatentSizes sizes;
    RopeParameters rope = {};  // of the Dr features
    // Of YaRN, as DeepSeek's own code has it: the scores are multiplied by the square of
    // yarn_mscale(factor, mscale_all_dim), cosine and sine by a quotient.
    Real mscale = 1, mscale_all_dim = 0;

    double scale() const;  // of the scores: 1/√(Dn + Dr), times that square
};

// What stands where attention does in a Llama.
using MixerConfig =
    std::variant<AttentionConfig, LatentConfig, LinearSizes, GatedConvolutionSizes>;

// The MLP of chapter 06: gated, or GPT-2's.
struct MlpConfig {
    std::size_t intermediate_size = 0;  // F
    Activation activation = SiLU;
    bool bias = false;
    bool gate = true;  // false: down(activation(up(x)))
};

// A mixture of experts of chapter 18.
struct MoeConfig {
    ExpertSizes sizes;
    Routing routing = SoftmaxRouting{};
    Activation activation = SiLU;
    bool bias = false;                                // of router and experts
    std::optional<Real> swiglu_limit = std::nullopt;  // experts are ClampedGatedMlp
    bool shared_gate = false;                         // of the shared expert
    bool correction_bias = true;                      // of SigmoidRouting; false: zeros
};

struct LayerConfig {
    MixerConfig mixer = AttentionConfig{};
    std::variant<MlpConfig, MoeConfig> mlp = MlpConfig{};
};

// The settings of a layer that has attention of chapter 17, or that has a dense MLP or a
// mixture of experts; null if it has another kind.
inline AttentionConfig* attention_of(LayerConfig& layer) {
    return std::get_if<AttentionConfig>(&layer.mixer);
}
inline const AttentionConfig* attention_of(const LayerConfig& layer) {
    return std::get_if<AttentionConfig>(&layer.mixer);
}
inline MlpConfig* mlp_of(LayerConfig& layer) { return std::get_if<MlpConfig>(&layer.mlp); }
inline const MlpConfig* mlp_of(const LayerConfig& layer) {
    return std::get_if<MlpConfig>(&layer.mlp);
}
inline const MoeConfig* moe_of(const LayerConfig& layer) {
    return std::get_if<MoeConfig>(&layer.mlp);
}

// The RoPE of a layer; null if it has none.
RopeParameters* rope_of(LayerConfig& layer);
const RopeParameters* rope_of(const LayerConfig& layer);
// Its window; none if it sees all, or has no attention of chapter 17.
std::optional<std::size_t> window_of(const LayerConfig& layer);

}  // namespace llm::models
