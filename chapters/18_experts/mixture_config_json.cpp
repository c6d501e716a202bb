#include <map>

#include "chapters/09_full_model/config_json.hpp"
#include "chapters/18_experts/mixture_config.hpp"

namespace llm {
namespace {

void add_qwen3_moe(const MixtureConfig& config, JsonMembers& json) {
    std::vector<std::size_t> dense;
    for (std::size_t n = 0; n < config.is_mixture.size(); ++n)
        if (!config.is_mixture[n]) dense.push_back(n);
    json.insert(json.end(), {{"attention_bias", false},
                             {"num_experts", config.sizes.num_experts},
                             {"moe_intermediate_size", config.sizes.moe_intermediate_size},
                             {"norm_topk_prob", config.norm_topk_prob},
                             {"decoder_sparse_step", std::size_t{1}},
                             {"mlp_only_layers", dense}});
}

void add_gpt_oss(const MixtureConfig& config, JsonMembers& json) {
    std::vector<std::string> layer_types;
    for (const AttentionPattern& pattern : config.patterns)
        layer_types.push_back(std::holds_alternative<SlidingWindow>(pattern)
                                  ? "sliding_attention"
                                  : "full_attention");
    json.insert(json.end(), {{"attention_bias", true},
                             {"layer_types", layer_types},
                             {"swiglu_limit", double(config.swiglu_limit)}});
    if (!config.yarn) return;
    const YarnScaling& yarn = *config.yarn;
    json.insert(json.end(), {{"rope_scaling.rope_type", std::string("yarn")},
                             {"rope_scaling.factor", double(yarn.factor)},
                             {"rope_scaling.original_max_position_embeddings",
                              double(yarn.original_max_position_embeddings)},
                             {"rope_scaling.beta_fast", double(yarn.beta_fast)},
                             {"rope_scaling.beta_slow", double(yarn.beta_slow)},
                             {"rope_scaling.truncate", yarn.truncate}});
}

void add_llama4(const MixtureConfig& config, JsonMembers& json) {
    std::vector<std::size_t> moe_layers, no_rope_layers;
    std::size_t chunk_size = 8192;
    for (std::size_t n = 0; n < config.is_mixture.size(); ++n) {
        if (config.is_mixture[n]) moe_layers.push_back(n);
        no_rope_layers.push_back(config.use_rope[n] ? 1 : 0);
        if (const auto* chunked = std::get_if<ChunkedAttention>(&config.patterns[n]))
            chunk_size = chunked->chunk_size;
    }
    json.insert(json.end(),
                {{"intermediate_size_mlp", config.config.intermediate_size},
                 {"moe_layers", moe_layers},
                 {"no_rope_layers", no_rope_layers},
                 {"attention_chunk_size", chunk_size},
                 {"use_qk_norm", config.config.qk_norm == QKNormType::without_weights},
                 {"attn_temperature_tuning", config.temperature_tuning.has_value()}});
    if (const auto& tuning = config.temperature_tuning)
        json.insert(json.end(), {{"floor_scale", double(tuning->floor_scale)},
                                 {"attn_scale", double(tuning->attn_scale)}});
    if (!config.config.rope_scaling) return;
    const auto& scaling = std::get<Llama3Scaling>(*config.config.rope_scaling);
    json.insert(json.end(),
                {{"rope_scaling.rope_type", std::string("llama3")},
                 {"rope_scaling.factor", double(scaling.factor)},
                 {"rope_scaling.low_freq_factor", double(scaling.low_freq_factor)},
                 {"rope_scaling.high_freq_factor", double(scaling.high_freq_factor)},
                 {"rope_scaling.original_max_position_embeddings",
                  double(scaling.original_max_position_embeddings)}});
}

}  // namespace

JsonMembers config_json(const MixtureConfig& given, DType dtype) {
    const std::map<MixtureModelType, std::string> architectures = {
        {MixtureModelType::mixtral, "Mixtral"},
        {MixtureModelType::qwen3_moe, "Qwen3Moe"},
        {MixtureModelType::gpt_oss, "GptOss"},
        {MixtureModelType::llama4_text, "Llama4"}};
    const MixtureModelType type = given.model_type;
    const bool qwen = type == MixtureModelType::qwen3_moe;
    Config config = given.config;
    if (!qwen) config.intermediate_size = given.sizes.moe_intermediate_size;
    JsonMembers json =
        common_members(to_text(type), architectures.at(type) + "ForCausalLM", config, dtype);
    json.insert(json.end(), {{"hidden_act", std::string("silu")},
                             {"num_experts_per_tok", given.sizes.num_experts_per_tok}});
    if (!qwen) json.push_back({"num_local_experts", given.sizes.num_experts});
    for (const AttentionPattern& pattern : given.patterns)
        if (const auto* sliding = std::get_if<SlidingWindow>(&pattern)) {
            json.push_back({"sliding_window", sliding->window});
            break;
        }
    if (qwen) add_qwen3_moe(given, json);
    if (type == MixtureModelType::gpt_oss) add_gpt_oss(given, json);
    if (type == MixtureModelType::llama4_text) add_llama4(given, json);
    return json;
}

}  // namespace llm
