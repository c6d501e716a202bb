// Chapter 17: the config.json of model types with sliding windows.
#pragma once

#include <optional>

#include "chapters/09_full_model/model.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// mistral: v0.1, with a window in every layer. gemma2: a window in every second layer, soft
// caps. gemma3_text: a window in five of six layers, two RoPEs, a QK norm. Both Gemmas have
// four norms per block, and scale the embeddings.
enum class LongContextModelType { mistral, gemma2, gemma3_text };
std::string to_text(LongContextModelType type);

// The fields of config.json, under Hugging Face's names.
struct LongContextConfig {
    LongContextModelType model_type = LongContextModelType::mistral;
    Config config;                           // sizes, and rope_theta of full attention
    std::vector<AttentionPattern> patterns;  // L; from layer_types and sliding_window
    std::optional<Real> rope_local_base_freq = std::nullopt;  // theta of layers with a window
    Real rope_factor = 1;            // rope_scaling of type linear, for full attention
    Real query_pre_attn_scalar = 0;  // the scale of scores is 1/√ of it; mistral: head_dim
    std::optional<Real> attn_logit_softcapping = std::nullopt;
    std::optional<Real> final_logit_softcapping = std::nullopt;

    bool is_gemma() const { return model_type != LongContextModelType::mistral; }
};

// Whether only this chapter reads this config.json. Chapter 09 reads mistral, too, if its
// windows are as wide as the context. Throws FileError.
bool is_long_context_config(const JsonFile& json);

// Throws FileError, which names the field, if one is missing, contradicts another, or requires
// an unsupported feature. Missing fields have the defaults of transformers 4.57.
LongContextConfig read_long_context_config(const JsonFile& json);

// The pattern of each layer from layer_types, which has sliding_attention or full_attention for
// each. Throws FileError.
std::vector<AttentionPattern> read_layer_types(const JsonFile& json,
                                               const SlidingWindow& window,
                                               std::size_t num_hidden_layers);

// The members of config.json for a configuration.
JsonMembers config_json(const LongContextConfig& config, DType dtype);

}  // namespace llm
