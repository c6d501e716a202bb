// Command R7B and Command A: attention and MLP in parallel, LayerNorm without bias, and three
// layers with a window and RoPE to one with full attention and none. Source: Hugging Face,
// modeling_cohere2.py.
#include "chapters/models/family_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void build_cohere2(FamilyConfig& config) {
    config.norm_type = NormType::layer_norm_without_bias;
    config.norm_placement = NormPlacement::parallel;
}

// Keys that the published files have and transformers does not read, and what they must say.
void check_other_keys(const JsonFile& json) {
    for (const auto& [key, supported] : {std::pair{"position_embedding_type", "rope_gptj"},
                                         {"order_of_interleaved_layers", "local_attn_first"}})
        if (json.has(key) && json.text(key) != supported)
            json.reject_value(key, json.text(key), supported);
    for (const auto& [key, supported] : {std::pair{"use_embedding_sharing", true},
                                         {"use_gated_activation", true},
                                         {"use_parallel_block", true}})
        if (json.boolean_or(key, supported) != supported)
            json.reject_value(key, supported ? "false" : "true", supported ? "true" : "false");
    json.ignore("use_parallel_embedding");  // the embedding is split over several devices
    if (json.has("rotary_pct") && json.number("rotary_pct") != 1)
        json.reject_value("rotary_pct", brief(json.number("rotary_pct")), "1");
}

void remove_rope_of_full_layers(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers)
        if (!window_of(layer)) attention_of(layer)->rope.reset();
}

void read_cohere2(const JsonFile& json, FamilyConfig& config) {
    if (config.num_attention_heads * config.head_dim != config.hidden_size)
        json.reject_value("head_dim", to_text(config.head_dim),
                          "hidden_size / num_attention_heads");
    check_other_keys(json);
    const std::size_t full_every = json.size_or("sliding_window_pattern", 4);
    if (json.size_or("layer_switch", full_every) != full_every)
        json.reject("layer_switch", "contradicts sliding_window_pattern");
    read_patterns(json, full_every, config);
    remove_rope_of_full_layers(config);
    config.logits_scaling = 1 / Real(json.positive_or("logit_scale", 0.0625));
}

void write_cohere2(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"layer_types", layer_types(config)},
                             {"sliding_window", sliding_window(config).value_or(4096)},
                             {"logit_scale", 1 / double(config.logits_scaling)}});
}

void check_cohere2_gguf(const FamilyConfig& config) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(bool(rope_of(config.layers[n])) == ((n + 1) % 4 != 0),
                "export: llama.cpp's cohere2 has full attention without RoPE in layers 3, 7, "
                "..., and windows in all others");
    require_tied_head(config, true);
}

void add_cohere2_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_number(config, "logit_scale", 1 / double(config.logits_scaling), metadata);
    add_gguf_window(config, metadata);
}

void read_cohere2_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    gguf.expect_text("rope.scaling.type", "none");
    read_gguf_windows(gguf, 4, config);
    remove_rope_of_full_layers(config);
    config.logits_scaling = 1 / gguf.positive("logit_scale");
}

}  // namespace

const Family& cohere2_family() {
    static const Family family{
        .model_type = "cohere2",
        .architecture = "Cohere2ForCausalLM",
        .gguf_architecture = "cohere2",
        .names = hugging_face_layer_names(),
        .gguf_names = gguf_layer_names(),
        .layout = {.rope = RopeLayout::interleaved},
        .gguf_layout = RopeLayout::interleaved,
        .attribute_map = {{"rms_norm_eps", "layer_norm_eps"}},
        .defaults = {256000, 8192, 22528, 40, 64, 0, 8192, 0, 1e-5, 10'000, true},
        .build = build_cohere2,
        .read = read_cohere2,
        .write = write_cohere2,
        .check_gguf = check_cohere2_gguf,
        .add_gguf = add_cohere2_gguf,
        .read_gguf = read_cohere2_gguf};
    return family;
}

}  // namespace llm::models
