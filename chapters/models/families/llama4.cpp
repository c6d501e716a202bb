// Llama 4 (text): chunked attention, every fourth layer without RoPE, a shared expert; a QK
// norm without weights in Scout, none in Maverick. Source: Hugging Face, modeling_llama4.py.
#include "chapters/models/families/llama4_gguf.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// A layer has a mixture of experts if interleave_moe_layer_step divides its number, counted
// from 1, or if moe_layers lists it. The others are as wide as intermediate_size_mlp says.
void read_moe_layers(const JsonFile& json, FamilyConfig& config) {
    MoeConfig moe = make_experts(
        config, read_experts(json, "num_local_experts", {16, 1, config.intermediate_size, 1}),
        InputSigmoidRouting{});
    config.intermediate_size = json.size_or("intermediate_size_mlp", 16384);
    for (LayerConfig& layer : config.layers)
        mlp_of(layer)->intermediate_size = config.intermediate_size;
    const std::size_t step = json.size_or("interleave_moe_layer_step", 1);
    if (!json.has("moe_layers"))
        return set_experts(config, moe, [&](std::size_t n) { return (n + 1) % step == 0; });
    for (const std::int64_t n : json.ids("moe_layers")) {
        if (n >= std::int64_t(config.layers.size()))
            json.reject("moe_layers",
                        "has no layer " + to_text(n) + " of " + to_text(config.layers.size()));
        config.layers[static_cast<std::size_t>(n)].mlp = moe;
    }
}

// layer_types, which newer versions of transformers write, says the same as no_rope_layers.
void check_layer_types(const JsonFile& json, const std::vector<LayerConfig>& layers) {
    if (!json.has("layer_types")) return;
    std::vector<std::vector<std::string>> expected;
    for (const LayerConfig& layer : layers)
        expected.push_back({rope_of(layer) ? "chunked_attention" : "full_attention"});
    if (json.text_lists("layer_types") != expected)
        json.reject("layer_types and no_rope_layers contradict each other");
}

void read_llama4(const JsonFile& json, FamilyConfig& config) {
    read_use_rope(json, config);
    read_moe_layers(json, config);
    check_layer_types(json, config.layers);
    Llama4Kinds kinds{TemperatureTuning{Real(json.positive_or("floor_scale", 8192)),
                                        Real(json.positive_or("attn_scale", 0.1))},
                      json.size_or("attention_chunk_size", 8192),
                      json.boolean_or("use_qk_norm", true)};
    if (!json.truth_or("attn_temperature_tuning", true))  // Maverick has the number 4
        kinds.tuning.reset();
    set_kinds(config, kinds);
}

void write_llama4(const FamilyConfig& config, JsonMembers& json) {
    std::vector<std::size_t> moe_layers;
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (moe_of(config.layers[n])) moe_layers.push_back(n);
    const Llama4Kinds kinds = kinds_of(config);
    json.insert(json.end(), {{"intermediate_size_mlp", config.intermediate_size},
                             {"moe_layers", moe_layers},
                             {"no_rope_layers", no_rope_layers(config)},
                             {"attention_chunk_size", kinds.chunk_size},
                             {"use_qk_norm", kinds.qk_norm},
                             {"attn_temperature_tuning", kinds.tuning.has_value()}});
    if (kinds.tuning)
        json.insert(json.end(), {{"floor_scale", double(kinds.tuning->floor_scale)},
                                 {"attn_scale", double(kinds.tuning->attn_scale)}});
    const MoeConfig* moe = first_moe(config);
    if (!moe) return;
    json.insert(json.end(), {{"num_experts_per_tok", moe->sizes.num_experts_per_tok},
                             {"num_local_experts", moe->sizes.num_experts}});
    for (auto& [key, value] : json)
        if (key == "intermediate_size") value = moe->sizes.moe_intermediate_size;
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
                      .layout = {.rope = RopeLayout::interleaved},
                      .gguf_layout = RopeLayout::interleaved,
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
