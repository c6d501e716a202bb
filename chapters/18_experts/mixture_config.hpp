// Chapter 18: the config.json of model types with mixtures of experts.
#pragma once

#include "chapters/09_full_model/model.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/score_function.hpp"
#include "chapters/17_long_context/yarn.hpp"
#include "chapters/18_experts/mixture_of_experts.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// mixtral: a mixture in every layer. qwen3_moe: a QK norm, many small experts. gpt_oss: windows
// in every second layer, learned sinks, YaRN, biases everywhere. llama4_text: a shared expert,
// chunks, and every fourth layer without RoPE.
enum class MixtureModelType { mixtral, qwen3_moe, gpt_oss, llama4_text };
std::string to_text(MixtureModelType type);

// The fields of config.json.
struct MixtureConfig {
    MixtureModelType model_type = MixtureModelType::mixtral;
    Config config;                           // sizes; intermediate_size of dense MLPs
    MixtureSizes sizes;                      // of each mixture
    std::vector<bool> is_mixture;            // L: has the layer a mixture, or a dense MLP?
    std::vector<AttentionPattern> patterns;  // L
    bool norm_topk_prob = true;
    std::optional<YarnScaling> yarn = std::nullopt;  // gpt_oss
    Real swiglu_limit = 7;                           // gpt_oss
    bool mxfp4 = false;                              // gpt_oss: how the experts are stored

    // llama4_text: L, whether each layer has RoPE (and then, if config.qk_norm says so, a QK
    // norm without weights: Scout has it, Maverick not); the temperature of the others;
    // config.rope_scaling.
    std::vector<bool> use_rope = {};
    std::optional<TemperatureTuning> temperature_tuning = std::nullopt;
};

// Whether this is a config.json of one of these types.
bool is_mixture_config(const JsonFile& json);

// Throws FileError, which names the field, if one is missing, contradicts another, or requires
// an unsupported feature. Missing fields have the defaults of transformers 4.57.
MixtureConfig read_mixture_config(const JsonFile& json);

// The members of config.json for a configuration.
JsonMembers config_json(const MixtureConfig& config, DType dtype);

}  // namespace llm
