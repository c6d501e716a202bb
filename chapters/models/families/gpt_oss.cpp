// gpt-oss: windows in every second layer, learned sinks, YaRN, biases everywhere, experts with
// a clamped activation whose weights may be stored in MXFP4. Source: Hugging Face,
// modeling_gpt_oss.py.
#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/rope_keys.hpp"

namespace llm::models {
namespace {

void build_gpt_oss(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers) {
        attention_of(layer)->bias = AttentionBias::qkvo;
        attention_of(layer)->sinks = true;
        mlp_of(layer)->bias = true;
    }
}

// Without the object, or if it is empty, YaRN has these numbers; null means none.
void read_default_yarn(const JsonFile& json, FamilyConfig& config) {
    const std::string inside = rope_object(json, false);
    const bool empty = json.has(inside) && json.value(inside) == Json(JsonObject{});
    if (json.is_null(inside) || (json.has(inside) && !empty)) return;
    YarnScaling yarn{32, 4096};
    yarn.truncate = empty;
    set_rope_scaling(config, yarn);
}

void set_mixtures(FamilyConfig& config, const ExpertSizes& sizes, Real swiglu_limit) {
    MoeConfig moe = make_experts(config, sizes, TopKSoftmaxRouting{});
    moe.swiglu_limit = swiglu_limit;
    set_experts(config, moe, [](std::size_t) { return true; });
}

void read_gpt_oss(const JsonFile& json, FamilyConfig& config) {
    const std::size_t num_layers = config.num_hidden_layers;
    read_default_yarn(json, config);
    set_mixtures(config,
                 read_experts(json, "num_local_experts", {128, 4, config.intermediate_size, 0}),
                 Real(json.positive_or("swiglu_limit", 7)));
    // A window in every second layer, the first one included, or as layer_types says.
    const SlidingWindow window{json.size_or("sliding_window", 128)};
    set_patterns(config, json.has("layer_types") ? read_layer_types(json, window, num_layers)
                                                 : layer_patterns(num_layers, window, 2));
    json.ignore("initial_context_length");  // the same as original_max_position_embeddings
}

void write_gpt_oss(const FamilyConfig& config, JsonMembers& json) {
    const MoeConfig& moe = *first_moe(config);
    json.insert(json.end(), {{"num_experts_per_tok", moe.sizes.num_experts_per_tok},
                             {"num_local_experts", moe.sizes.num_experts},
                             {"layer_types", layer_types(config)},
                             {"swiglu_limit", double(*moe.swiglu_limit)}});
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
    if (std::holds_alternative<std::monostate>(main_rope(config)->scaling))
        json.push_back({"rope_scaling", nullptr});
}

void check_gpt_oss_gguf(const FamilyConfig& config) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(window_of(config.layers[n]).has_value() == (n % 2 == 0),
                "export: llama.cpp's gpt-oss has windows in layers 0, 2, ... and full "
                "attention in all others");
    require(first_moe(config)->swiglu_limit == Real(7),
            "export: llama.cpp's gpt-oss has a swiglu_limit of 7");
    const auto* yarn = std::get_if<YarnScaling>(&main_rope(config)->scaling);
    require(!yarn || (yarn->truncate && yarn->beta_fast == 32 && yarn->beta_slow == 1),
            "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, to whole pairs");
    require(!config.tie_word_embeddings, "export: llama.cpp's gpt-oss has an lm_head");
}

void add_gpt_oss_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_experts(config, metadata);
    add_gguf_window(config, metadata);
    add_gguf_yarn(config, metadata);
}

void read_gpt_oss_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    set_mixtures(config, read_gguf_experts(gguf, "expert_feed_forward_length"), Real(7));
    // A window in every second layer, the first one included.
    const SlidingWindow window{gguf.size("attention.sliding_window")};
    set_patterns(config, layer_patterns(config.num_hidden_layers, window, 2));
    if (const auto yarn = read_gguf_yarn(gguf)) set_rope_scaling(config, *yarn);
}

}  // namespace

const Family& gpt_oss_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
        names.sinks = "self_attn.sinks";
        names.router = "mlp.router";
        names.experts = "mlp.experts.";
        in_gguf.ffn_norm = "post_attention_norm";
        return Family{.model_type = "gpt_oss",
                      .architecture = "GptOssForCausalLM",
                      .gguf_architecture = "gpt-oss",
                      .names = names,
                      .gguf_names = in_gguf,
                      .layout = {.alternate_columns = true},
                      .defaults = {201088, 2880, 2880, 36, 64, 8, 131072, 64, 1e-5, 150'000},
                      .build = build_gpt_oss,
                      .read = read_gpt_oss,
                      .write = write_gpt_oss,
                      .check_gguf = check_gpt_oss_gguf,
                      .add_gguf = add_gpt_oss_gguf,
                      .read_gguf = read_gpt_oss_gguf};
    }();
    return family;
}

}  // namespace llm::models
