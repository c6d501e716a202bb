// gpt-oss: windows in every second layer, learned sinks, YaRN, biases everywhere, experts with
// a clamped activation whose weights may be stored in MXFP4. Source: Hugging Face,
// modeling_gpt_oss.py.
#include "chapters/models/family.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/rope_keys.hpp"

namespace llm::models {
namespace {

std::optional<YarnScaling> read_yarn(const JsonFile& json) {
    const std::string inside = rope_object(json, false);
    if (json.is_null(inside)) return std::nullopt;
    // Defaults are for a file without the object. In the object, type and factor are required.
    if (json.has(inside) && !(json.value(inside) == Json(JsonObject{}))) {
        const std::string rope_type = read_rope_type(json, inside);
        if (rope_type == "default") return std::nullopt;
        if (rope_type != "yarn") json.reject_value(inside + ".rope_type", rope_type, "yarn");
        json.number(inside + ".factor");
    }
    YarnScaling yarn = read_yarn_numbers(json, inside, 32);
    yarn.truncate = json.boolean_or(inside + ".truncate", json.has(inside));
    return yarn;
}

void read_gpt_oss(const JsonFile& json, FamilyConfig& config) {
    const std::size_t num_layers = config.num_hidden_layers;
    config.experts =
        read_experts(json, "num_local_experts", {128, 4, config.intermediate_size, 0});
    config.routing = TopKSoftmaxRouting{};
    config.swiglu_limit = Real(json.positive_or("swiglu_limit", 7));
    config.yarn = read_yarn(json);

    // A window in every second layer, the first one included, or as layer_types says.
    const SlidingWindow window{json.size_or("sliding_window", 128)};
    set_patterns(config, json.has("layer_types") ? read_layer_types(json, window, num_layers)
                                                 : layer_patterns(num_layers, window, 2));
    for (LayerConfig& layer : config.layers) layer.is_moe = true;
    json.ignore("initial_context_length");  // the same as original_max_position_embeddings
    config.mxfp4 = quantization_method(json) == "mxfp4";
}

void write_gpt_oss(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"num_experts_per_tok", config.experts.num_experts_per_tok},
                             {"num_local_experts", config.experts.num_experts},
                             {"layer_types", layer_types(config)},
                             {"swiglu_limit", double(*config.swiglu_limit)}});
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
    if (!config.yarn) return;
    add_yarn(*config.yarn, json);
    json.push_back({"rope_scaling.truncate", config.yarn->truncate});
}

void check_gpt_oss_gguf(const FamilyConfig& config) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(std::holds_alternative<SlidingWindow>(config.layers[n].pattern) == (n % 2 == 0),
                "export: llama.cpp's gpt-oss has windows in layers 0, 2, ... and full "
                "attention in all others");
    require(config.swiglu_limit == Real(7),
            "export: llama.cpp's gpt-oss has a swiglu_limit of 7");
    require(!config.yarn || (config.yarn->truncate && config.yarn->beta_fast == 32 &&
                             config.yarn->beta_slow == 1),
            "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, to whole pairs");
    require(!config.tie_word_embeddings, "export: llama.cpp's gpt-oss has an lm_head");
}

void add_gpt_oss_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const auto add = [&](const std::string& key, const GgufValue& value) {
        metadata.emplace_back("gpt-oss." + key, value);
    };
    const auto add_size = [&](const std::string& key, std::size_t size) {
        add(key, static_cast<std::int64_t>(size));
    };
    add_size("expert_count", config.experts.num_experts);
    add_size("expert_used_count", config.experts.num_experts_per_tok);
    add_size("expert_feed_forward_length", config.experts.moe_intermediate_size);
    add_size("attention.sliding_window", *sliding_window(config));
    if (!config.yarn) return;
    add("rope.scaling.type", std::string("yarn"));
    add("rope.scaling.factor", double(config.yarn->factor));
    add("rope.scaling.original_context_length",
        static_cast<std::int64_t>(config.yarn->original_max_position_embeddings));
}

void read_gpt_oss_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_experts(gguf, "expert_feed_forward_length", 1, config);
    config.routing = TopKSoftmaxRouting{};
    config.swiglu_limit = Real(7);
    // A window in every second layer, the first one included.
    const SlidingWindow window{gguf.size("attention.sliding_window")};
    set_patterns(config, layer_patterns(config.num_hidden_layers, window, 2));
    if (!gguf.has("rope.scaling.type")) return;
    gguf.expect_text("rope.scaling.type", "yarn");
    YarnScaling yarn;
    yarn.factor = gguf.positive("rope.scaling.factor");
    yarn.original_max_position_embeddings =
        gguf.positive("rope.scaling.original_context_length");
    config.yarn = yarn;
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
                      .expert_storage = ExpertStorage::interleaved,
                      .has_biases = true,
                      .reads_rope_scaling = true,
                      .defaults = {201088, 2880, 2880, 36, 64, 8, 131072, 64, 1e-5, 150'000},
                      .read = read_gpt_oss,
                      .write = write_gpt_oss,
                      .check_gguf = check_gpt_oss_gguf,
                      .add_gguf = add_gpt_oss_gguf,
                      .read_gguf = read_gpt_oss_gguf};
    }();
    return family;
}

}  // namespace llm::models
