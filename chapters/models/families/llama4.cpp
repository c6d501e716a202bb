// Llama 4 (text): chunked attention, every fourth layer without RoPE, a shared expert; a QK
// norm without weights in Scout, none in Maverick. Source: Hugging Face, modeling_llama4.py.
#include "chapters/models/family.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// A layer has a mixture of experts if interleave_moe_layer_step divides its number, counted
// from 1, or if moe_layers lists it.
void read_moe_layers(const JsonFile& json, std::vector<LayerConfig>& layers) {
    const std::size_t step = json.size_or("interleave_moe_layer_step", 1);
    const bool listed = json.has("moe_layers");
    for (std::size_t n = 0; n < layers.size(); ++n)
        layers[n].is_moe = !listed && (n + 1) % step == 0;
    if (!listed) return;
    for (const std::int64_t n : json.ids("moe_layers")) {
        if (n >= std::int64_t(layers.size()))
            json.reject("moe_layers",
                        "has no layer " + to_text(n) + " of " + to_text(layers.size()));
        layers[static_cast<std::size_t>(n)].is_moe = true;
    }
}

// layer_types, which newer versions of transformers write, says the same as no_rope_layers.
void check_layer_types(const JsonFile& json, const std::vector<LayerConfig>& layers) {
    if (!json.has("layer_types")) return;
    std::vector<std::vector<std::string>> expected;
    for (const LayerConfig& layer : layers)
        expected.push_back({layer.use_rope ? "chunked_attention" : "full_attention"});
    if (json.text_lists("layer_types") != expected)
        json.reject("layer_types and no_rope_layers contradict each other");
}

void read_llama4(const JsonFile& json, FamilyConfig& config) {
    config.experts =
        read_experts(json, "num_local_experts", {16, 1, config.intermediate_size, 1});
    config.intermediate_size = json.size_or("intermediate_size_mlp", 16384);
    config.routing = InputSigmoidRouting{};
    config.qk_norm =
        json.boolean_or("use_qk_norm", true) ? QKNormType::without_weights : QKNormType::none;
    read_use_rope(json, config.layers);
    read_moe_layers(json, config.layers);
    const ChunkedAttention chunks{json.size_or("attention_chunk_size", 8192)};
    for (LayerConfig& layer : config.layers)
        if (layer.use_rope) layer.pattern = chunks;  // the others see everything
    check_layer_types(json, config.layers);
    const TemperatureTuning tuning{Real(json.positive_or("floor_scale", 8192)),
                                   Real(json.positive_or("attn_scale", 0.1))};
    if (json.truth_or("attn_temperature_tuning", true))  // Maverick has the number 4
        config.temperature_tuning = tuning;
}

void write_llama4(const FamilyConfig& config, JsonMembers& json) {
    std::vector<std::size_t> moe_layers, no_rope_layers;
    std::size_t chunk_size = 8192;
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        const LayerConfig& layer = config.layers[n];
        if (layer.is_moe) moe_layers.push_back(n);
        no_rope_layers.push_back(layer.use_rope ? 1 : 0);
        if (const auto* chunked = std::get_if<ChunkedAttention>(&layer.pattern))
            chunk_size = chunked->chunk_size;
    }
    json.insert(json.end(),
                {{"intermediate_size_mlp", config.intermediate_size},
                 {"num_experts_per_tok", config.experts.num_experts_per_tok},
                 {"num_local_experts", config.experts.num_experts},
                 {"moe_layers", moe_layers},
                 {"no_rope_layers", no_rope_layers},
                 {"attention_chunk_size", chunk_size},
                 {"use_qk_norm", config.qk_norm == QKNormType::without_weights},
                 {"attn_temperature_tuning", config.temperature_tuning.has_value()}});
    if (const auto& tuning = config.temperature_tuning)
        json.insert(json.end(), {{"floor_scale", double(tuning->floor_scale)},
                                 {"attn_scale", double(tuning->attn_scale)}});
    for (auto& [key, value] : json)
        if (key == "intermediate_size") value = config.experts.moe_intermediate_size;
}

// The number of layers up to the first with a mixture of experts, which llama.cpp expects to
// repeat.
std::size_t moe_step(const FamilyConfig& config) {
    std::size_t first = 0;
    while (first < config.layers.size() && !config.layers[first].is_moe) ++first;
    return first + 1;
}

void check_llama4_gguf(const FamilyConfig& config) {
    require(config.temperature_tuning && config.temperature_tuning->floor_scale == 8192 &&
                config.temperature_tuning->attn_scale == Real(0.1),
            "export: llama.cpp's llama4 has a floor_scale of 8192 and an attn_scale of 0.1");
    require((config.qk_norm == QKNormType::none) == (config.experts.num_experts == 128),
            "export: llama.cpp's llama4 has no QK norm if it has 128 experts, and one "
            "otherwise");
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        const LayerConfig& layer = config.layers[n];
        const auto* chunked = std::get_if<ChunkedAttention>(&layer.pattern);
        require(
            layer.use_rope == ((n + 1) % 4 != 0) && (!chunked || chunked->chunk_size == 8192),
            "export: llama.cpp's llama4 has full attention without RoPE in layers 3, 7, "
            "... and chunks of 8192 in all others");
        require(layer.is_moe == ((n + 1) % moe_step(config) == 0),
                "export: llama.cpp's llama4 has mixtures at equal distances, unlike layer {}",
                n);
    }
}

void add_llama4_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const auto add_size = [&](const std::string& key, std::size_t size) {
        metadata.emplace_back("llama4." + key, static_cast<std::int64_t>(size));
    };
    add_size("expert_count", config.experts.num_experts);
    add_size("expert_used_count", config.experts.num_experts_per_tok);
    add_size("expert_feed_forward_length", config.experts.moe_intermediate_size);
    add_size("interleave_moe_layer_step", moe_step(config));
}

void read_llama4_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    const std::string step = "interleave_moe_layer_step", chunk = "attention.chunk_size";
    read_gguf_experts(gguf, "expert_feed_forward_length", gguf.has(step) ? gguf.size(step) : 1,
                      config);
    config.experts.n_shared_experts = 1;
    config.routing = InputSigmoidRouting{};
    config.qk_norm =
        config.experts.num_experts == 128 ? QKNormType::none : QKNormType::without_weights;
    config.temperature_tuning = TemperatureTuning{};
    const ChunkedAttention chunks{gguf.has(chunk) ? gguf.size(chunk) : 8192};
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        config.layers[n].use_rope = (n + 1) % 4 != 0;
        if (config.layers[n].use_rope) config.layers[n].pattern = chunks;
    }
}

}  // namespace

const Family& llama4_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names();
        names.mlp = {"feed_forward.gate_proj", "feed_forward.up_proj",
                     "feed_forward.down_proj"};
        names.router = "feed_forward.router";
        names.experts = "feed_forward.experts.";
        names.shared_expert = {"feed_forward.shared_expert.gate_proj",
                               "feed_forward.shared_expert.up_proj",
                               "feed_forward.shared_expert.down_proj"};
        return Family{.model_type = "llama4_text",
                      .architecture = "Llama4ForCausalLM",
                      .gguf_architecture = "llama4",
                      .names = names,
                      .gguf_names = gguf_layer_names(),
                      .layout = RopeLayout::interleaved,
                      .gguf_layout = RopeLayout::interleaved,
                      .expert_storage = ExpertStorage::halves,
                      .defaults = {202048, 5120, 8192, 48, 40, 8, 131072, 128, 1e-5, 500'000},
                      .read = read_llama4,
                      .write = write_llama4,
                      .check_gguf = check_llama4_gguf,
                      .add_gguf = add_llama4_gguf,
                      .read_gguf = read_llama4_gguf};
    }();
    return family;
}

}  // namespace llm::models
