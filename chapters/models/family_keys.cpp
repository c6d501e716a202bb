// Keys of config.json that several families have.
#include "chapters/models/activations.hpp"
#include "chapters/models/family.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {

std::vector<AttentionPattern> read_layer_types(const JsonFile& json,
                                               const SlidingWindow& window,
                                               std::size_t num_hidden_layers) {
    std::vector<AttentionPattern> patterns;
    for (const auto& names : json.text_lists("layer_types")) {
        const std::string name = names.empty() ? "" : names.front();
        if (name != "full_attention" && name != "sliding_attention")
            json.reject_value("layer_types", name, "full_attention and sliding_attention");
        if (name == "sliding_attention" && json.is_null("sliding_window"))
            json.reject("layer_types has sliding_attention, but sliding_window is null");
        patterns.push_back(name == "full_attention" ? AttentionPattern{FullAttention{}}
                                                    : AttentionPattern{window});
    }
    if (patterns.size() != num_hidden_layers)
        json.reject("layer_types has " + to_text(patterns.size()) + " entries for " +
                    to_text(num_hidden_layers) + " layers");
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

void read_rope_scaling(const JsonFile& json, FamilyConfig& config) {
    const std::string inside = rope_object(json, config.family->local_rope);
    const std::string type = read_rope_type(json, inside);
    if (type == "linear") {
        config.rope_factor = Real(json.positive_or(inside + ".factor", 0));
        return;
    }
    if (read_simple_scaling(json, inside, config)) return;
    if (type != "yarn")
        json.reject_value(inside + ".rope_type", type,
                          "default, linear, dynamic, llama3 and yarn");
    json.number(inside + ".factor");
    YarnScaling yarn = read_yarn_numbers(json, inside, 1);
    if (!json.has(inside + ".original_max_position_embeddings"))
        yarn.original_max_position_embeddings = Real(config.max_position_embeddings);
    yarn.truncate = json.boolean_or(inside + ".truncate", true);
    if (json.has(inside + ".attention_factor"))
        yarn.attention_factor = Real(json.positive_or(inside + ".attention_factor", 1));
    config.yarn = yarn;
}

void add_rope_scaling(const FamilyConfig& config, JsonMembers& members) {
    if (config.rope_factor != 1)
        members.insert(members.end(), {{"rope_scaling.rope_type", std::string("linear")},
                                       {"rope_scaling.factor", double(config.rope_factor)}});
    if (config.yarn) {
        add_yarn(*config.yarn, members);
        members.push_back({"rope_scaling.truncate", config.yarn->truncate});
        if (config.yarn->attention_factor)
            members.push_back(
                {"rope_scaling.attention_factor", double(*config.yarn->attention_factor)});
    }
    if (!config.rope_scaling) return;
    const auto* llama3 = std::get_if<Llama3Scaling>(&*config.rope_scaling);
    require(llama3, "export: no supported rope_scaling has a factor for each frequency");
    add_llama3_scaling(*llama3, members);
}

void read_use_rope(const JsonFile& json, std::vector<LayerConfig>& layers) {
    const std::size_t interval = json.size_or("no_rope_layer_interval", 4);
    for (std::size_t n = 0; n < layers.size(); ++n)
        layers[n].use_rope = (n + 1) % interval != 0;
    if (!json.has("no_rope_layers")) return;
    const std::vector<std::int64_t> given = json.ids("no_rope_layers");
    if (given.empty()) return;
    if (given.size() != layers.size())
        json.reject("no_rope_layers has " + to_text(given.size()) + " entries for " +
                    to_text(layers.size()) + " layers");
    for (std::size_t n = 0; n < layers.size(); ++n) layers[n].use_rope = given[n] != 0;
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

void read_partial_rotary_factor(const JsonFile& json, const std::string& inside,
                                double default_factor, FamilyConfig& config) {
    const std::string outer = "partial_rotary_factor", inner = inside + "." + outer;
    const double factor = json.positive_or(json.has(inner) ? inner : outer, default_factor);
    if (json.has(inner) && json.positive_or(outer, factor) != factor)
        json.reject(outer, "contradicts " + inner);
    config.partial_rotary_factor = factor;
    if (factor > 1 || rotary_dim(config) < 2 || rotary_dim(config) % 2 != 0)
        json.reject_value(
            outer, brief(factor),
            "an even number of the " + to_text(config.head_dim) + " features of a head");
}

void read_moe_layers(const JsonFile& json, FamilyConfig& config) {
    const std::size_t step = json.size_or("decoder_sparse_step", 1);
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        config.layers[n].is_moe = config.experts.num_experts > 0 && (n + 1) % step == 0;
    if (!json.has("mlp_only_layers")) return;
    for (const std::int64_t n : json.ids("mlp_only_layers")) {
        if (n >= std::int64_t(config.layers.size()))
            json.reject("mlp_only_layers",
                        "has no layer " + to_text(n) + " of " + to_text(config.layers.size()));
        config.layers[static_cast<std::size_t>(n)].is_moe = false;
    }
}

void add_moe_layers(const FamilyConfig& config, JsonMembers& members) {
    std::vector<std::size_t> dense;
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (!config.layers[n].is_moe) dense.push_back(n);
    members.push_back({"decoder_sparse_step", std::size_t{1}});
    members.push_back({"mlp_only_layers", dense});
}

std::vector<std::string> layer_types(const FamilyConfig& config) {
    std::vector<std::string> result;
    for (const LayerConfig& layer : config.layers)
        result.push_back(std::holds_alternative<SlidingWindow>(layer.pattern)
                             ? "sliding_attention"
                             : "full_attention");
    return result;
}

YarnScaling read_yarn_numbers(const JsonFile& json, const std::string& inside,
                              double default_factor) {
    const auto number = [&](const std::string& key, double otherwise) {
        return Real(json.positive_or(inside + "." + key, otherwise));
    };
    YarnScaling yarn;
    yarn.factor = number("factor", default_factor);
    yarn.original_max_position_embeddings = number("original_max_position_embeddings", 4096);
    yarn.beta_fast = number("beta_fast", 32);
    yarn.beta_slow = number("beta_slow", 1);
    return yarn;
}

void add_yarn(const YarnScaling& yarn, JsonMembers& members) {
    members.insert(members.end(), {{"rope_scaling.rope_type", std::string("yarn")},
                                   {"rope_scaling.factor", double(yarn.factor)},
                                   {"rope_scaling.original_max_position_embeddings",
                                    double(yarn.original_max_position_embeddings)},
                                   {"rope_scaling.beta_fast", double(yarn.beta_fast)},
                                   {"rope_scaling.beta_slow", double(yarn.beta_slow)}});
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

}  // namespace llm::models
