// Keys of config.json that several families have.
#include "chapters/models/family_keys.hpp"

#include <algorithm>
#include <set>

#include "chapters/models/activations.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "common/output/show.hpp"

namespace llm::models {

FamilyLayerNames hugging_face_layer_names() { return {hugging_face_names.layers}; }

FamilyLayerNames gguf_layer_names() {
    FamilyLayerNames result{gguf_names.layers};
    result.sinks = "attn_sinks.weight";
    result.router = "ffn_gate_inp";
    result.expert = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    result.shared_expert = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    return result;
}

std::vector<bool> read_layer_kinds(const JsonFile& json, const std::string& key,
                                   const std::string& kind, const std::string& other,
                                   std::size_t num_layers) {
    std::vector<bool> result;
    for (const auto& names : json.text_lists(key)) {
        const std::string name = names.empty() ? "" : names.front();
        if (name != kind && name != other)
            json.reject_value(key, name,
                              std::min(kind, other) + " and " + std::max(kind, other));
        result.push_back(name == kind);
    }
    if (result.size() != num_layers)
        json.reject(key + " has " + to_text(result.size()) + " entries for " +
                    to_text(num_layers) + " layers");
    return result;
}

std::vector<AttentionPattern> read_layer_types(const JsonFile& json,
                                               const SlidingWindow& window,
                                               std::size_t num_hidden_layers) {
    std::vector<AttentionPattern> patterns;
    for (const bool slides : read_layer_kinds(json, "layer_types", "sliding_attention",
                                              "full_attention", num_hidden_layers)) {
        if (slides && json.is_null("sliding_window"))
            json.reject("layer_types has sliding_attention, but sliding_window is null");
        patterns.push_back(slides ? AttentionPattern{window} : FullAttention{});
    }
    return patterns;
}

Activation read_activation(const JsonFile& json, const std::string& key,
                           const Activation& otherwise) {
    if (!json.has(key)) return otherwise;
    const std::string name = json.text(key);
    if (name == otherwise.name) return otherwise;
    const auto& named = named_activations();
    const auto found = named.find(name);
    if (found == named.end())
        json.reject_value(key, name,
                          "silu, gelu, relu and the others of ACT2FN but prelu and xielu");
    return found->second;
}

void read_mlp_bias(const JsonFile& json, FamilyConfig& config) {
    for (LayerConfig& layer : config.layers)
        if (MlpConfig* mlp = mlp_of(layer)) mlp->bias = json.boolean_or("mlp_bias", mlp->bias);
}

void add_mlp_bias(const FamilyConfig& config, JsonMembers& members) {
    const MlpConfig* mlp = config.layers.empty() ? nullptr : mlp_of(config.layers.front());
    if (mlp && mlp->bias) members.push_back({"mlp_bias", true});
}

void read_use_rope(const JsonFile& json, FamilyConfig& config) {
    const std::size_t interval = json.size_or("no_rope_layer_interval", 4),
                      num_layers = config.layers.size();
    std::vector<std::int64_t> uses_rope;
    if (json.has("no_rope_layers")) uses_rope = json.ids("no_rope_layers");
    if (!uses_rope.empty() && uses_rope.size() != num_layers)
        json.reject("no_rope_layers has " + to_text(uses_rope.size()) + " entries for " +
                    to_text(num_layers) + " layers");
    for (std::size_t n = 0; n < num_layers; ++n)
        if (uses_rope.empty() ? (n + 1) % interval == 0 : uses_rope[n] == 0)
            attention_of(config.layers[n])->rope.reset();
}

std::vector<std::size_t> no_rope_layers(const FamilyConfig& config) {
    std::vector<std::size_t> result;
    for (const LayerConfig& layer : config.layers) result.push_back(rope_of(layer) ? 1 : 0);
    return result;
}

void read_patterns(const JsonFile& json, std::size_t full_every, FamilyConfig& config) {
    const std::size_t num_layers = config.num_hidden_layers;
    const SlidingWindow window{json.size_or("sliding_window", 4096)};
    if (json.has("layer_types"))
        set_patterns(config, read_layer_types(json, window, num_layers));
    else if (json.is_null("sliding_window"))
        set_patterns(config, std::vector<AttentionPattern>(num_layers, FullAttention{}));
    else
        set_patterns(config, layer_patterns(num_layers, window, full_every));
}

void set_patterns(FamilyConfig& config, const std::vector<AttentionPattern>& patterns) {
    for (std::size_t n = 0; n < patterns.size(); ++n)
        if (AttentionConfig* attention = attention_of(config.layers[n]))
            attention->pattern = patterns[n];
}

std::vector<std::string> layer_types(const FamilyConfig& config) {
    std::vector<std::string> result;
    for (const LayerConfig& layer : config.layers)
        result.push_back(window_of(layer) ? "sliding_attention" : "full_attention");
    return result;
}

void add_windows(const FamilyConfig& config, JsonMembers& members) {
    if (const auto window = sliding_window(config))
        members.insert(members.end(),
                       {{"layer_types", layer_types(config)}, {"sliding_window", *window}});
}

ExpertSizes read_experts(const JsonFile& json, const std::string& num_experts_key,
                         const ExpertSizes& defaults) {
    ExpertSizes sizes = defaults;
    const std::string other =
        num_experts_key == "num_experts" ? "num_local_experts" : "num_experts";
    sizes.num_experts = json.count_or(json.has(num_experts_key) ? num_experts_key : other,
                                      defaults.num_experts);
    sizes.num_experts_per_tok =
        json.count_or("num_experts_per_tok",
                      json.count_or("experts_per_token", defaults.num_experts_per_tok));
    if (sizes.num_experts_per_tok == 0 && sizes.num_experts > 0)
        json.reject("num_experts_per_tok", "must be at least 1, not 0");
    if (sizes.num_experts_per_tok > sizes.num_experts)
        json.reject("num_experts_per_tok", "must be at most the number of experts, " +
                                               to_text(sizes.num_experts) + ", not " +
                                               to_text(sizes.num_experts_per_tok));
    return sizes;
}

MoeConfig make_experts(const FamilyConfig& config, const ExpertSizes& sizes,
                       const Routing& routing) {
    MoeConfig moe{sizes, routing};
    const MlpConfig* mlp = config.layers.empty() ? nullptr : mlp_of(config.layers.front());
    if (!mlp) return moe;
    moe.activation = mlp->activation;
    moe.bias = mlp->bias;
    return moe;
}

std::size_t num_dense_layers(const FamilyConfig& config) {
    const auto first = std::find_if(config.layers.begin(), config.layers.end(),
                                    [](const LayerConfig& layer) { return moe_of(layer); });
    return std::size_t(first - config.layers.begin());
}

void read_moe_layers(const JsonFile& json, const MoeConfig& moe, FamilyConfig& config) {
    const std::size_t step = json.size_or("decoder_sparse_step", 1);
    std::set<std::size_t> dense;
    if (json.has("mlp_only_layers"))
        for (const std::int64_t n : json.ids("mlp_only_layers")) {
            if (n >= std::int64_t(config.layers.size()))
                json.reject("mlp_only_layers", "has no layer " + to_text(n) + " of " +
                                                   to_text(config.layers.size()));
            dense.insert(std::size_t(n));
        }
    set_experts(config, moe, [&](std::size_t n) {
        return moe.sizes.num_experts > 0 && (n + 1) % step == 0 && !dense.contains(n);
    });
}

void add_moe_layers(const FamilyConfig& config, JsonMembers& members) {
    std::vector<std::size_t> dense;
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (mlp_of(config.layers[n])) dense.push_back(n);
    members.push_back({"decoder_sparse_step", std::size_t{1}});
    members.push_back({"mlp_only_layers", dense});
}

}  // namespace llm::models
