#include "chapters/17_long_context/long_context_config.hpp"

#include <algorithm>

#include "chapters/09_full_model/config_json.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

const std::map<std::string, LongContextModelType> model_types = {
    {"mistral", LongContextModelType::mistral},
    {"gemma2", LongContextModelType::gemma2},
    {"gemma3_text", LongContextModelType::gemma3_text}};

bool is_gemma(LongContextModelType type) { return type != LongContextModelType::mistral; }

[[noreturn]] void refuse_value(const JsonFile& json, const std::string& key,
                               const std::string& value, const std::string& supported) {
    json.refuse(key, value + " is not supported; supported: " + supported);
}

std::size_t size_or(const JsonFile& json, const std::string& key, std::size_t otherwise) {
    return json.has(key) ? json.size(key) : otherwise;
}

Real positive_or(const JsonFile& json, const std::string& key, double otherwise) {
    const double value = json.has(key) ? json.number(key) : otherwise;
    if (!(value > 0)) json.refuse(key + " must be above 0");
    return static_cast<Real>(value);
}

// A soft cap: a default if the key is missing, none if it is null.
std::optional<Real> read_softcap(const JsonFile& json, const std::string& key,
                                 std::optional<double> otherwise) {
    if (json.is_null(key) || (!json.has(key) && !otherwise)) return std::nullopt;
    return positive_or(json, key, otherwise.value_or(1));
}

void refuse_unsupported(const JsonFile& json, LongContextModelType type) {
    const std::string activation = is_gemma(type) ? "gelu_pytorch_tanh" : "silu";
    const std::string activation_key = is_gemma(type) ? "hidden_activation" : "hidden_act";
    if (json.has(activation_key) && json.text(activation_key) != activation)
        refuse_value(json, activation_key, json.text(activation_key), activation);
    for (const char* key : {"attention_bias", "mlp_bias", "use_bidirectional_attention"})
        if (json.has(key) && json.boolean(key)) refuse_value(json, key, "true", "false");
    for (const char* key : {"quantization_config", "rope_parameters", "partial_rotary_factor",
                            "no_rope_layers", "clip_qkv"})
        if (json.has(key)) json.refuse(key, "is not supported");
}

// The sizes and the RoPE of layers with full attention, with the defaults of each model type.
Config read_sizes(const JsonFile& json, LongContextModelType type) {
    Config config;
    config.hidden_size = json.size("hidden_size");
    config.intermediate_size = json.size("intermediate_size");
    config.num_hidden_layers = json.size("num_hidden_layers");
    config.num_attention_heads = json.size("num_attention_heads");
    config.num_key_value_heads = json.size("num_key_value_heads");
    config.head_dim = size_or(json, "head_dim", is_gemma(type) ? 256 : 0);
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_position_embeddings");
    config.rms_norm_eps = positive_or(json, "rms_norm_eps", 1e-6);
    config.rope_theta = positive_or(
        json, "rope_theta", type == LongContextModelType::gemma3_text ? 1'000'000 : 10'000);
    config.tie_word_embeddings =
        json.has("tie_word_embeddings") ? json.boolean("tie_word_embeddings") : is_gemma(type);
    config.qk_norm =
        type == LongContextModelType::gemma3_text ? QKNormType::with_weights : QKNormType::none;
    return validate_model(config);
}

// The pattern of each layer: layer_types if it is there, else every sixth layer (Gemma 3) or
// every second one (Gemma 2) has full attention, or none (Mistral, unless the window is null).
std::vector<AttentionPattern> read_patterns(const JsonFile& json, LongContextModelType type,
                                            std::size_t num_hidden_layers) {
    if (json.is_null("sliding_window") && !json.has("layer_types"))
        return std::vector<AttentionPattern>(num_hidden_layers, FullAttention{});
    const SlidingWindow window{size_or(json, "sliding_window", 4096)};
    if (!json.has("layer_types")) {
        const std::size_t full_every = type == LongContextModelType::mistral  ? 0
                                       : type == LongContextModelType::gemma2 ? 2
                                       : json.has("_sliding_window_pattern")
                                           ? json.size("_sliding_window_pattern")
                                           : size_or(json, "sliding_window_pattern", 6);
        return layer_patterns(num_hidden_layers, window, full_every);
    }
    return read_layer_types(json, window, num_hidden_layers);
}

// rope_scaling of Gemma 3, which is for layers with full attention only.
Real read_rope_factor(const JsonFile& json, LongContextModelType type) {
    if (!json.has("rope_scaling")) return 1;
    for (const char* key : {"rope_scaling.rope_type", "rope_scaling.type"}) {
        if (!json.has(key)) continue;
        const std::string rope_type = json.text(key);
        if (rope_type == "default") return 1;
        if (rope_type != "linear" || type != LongContextModelType::gemma3_text)
            refuse_value(
                json, key, rope_type,
                type == LongContextModelType::gemma3_text ? "default and linear" : "default");
        return positive_or(json, "rope_scaling.factor", 0);
    }
    json.refuse("rope_scaling has no rope_type");
}

}  // namespace

std::vector<AttentionPattern> read_layer_types(const JsonFile& json,
                                               const SlidingWindow& window,
                                               std::size_t num_hidden_layers) {
    std::vector<AttentionPattern> patterns;
    for (const auto& names : json.text_lists("layer_types")) {
        const std::string name = names.empty() ? "" : names.front();
        if (name != "full_attention" && name != "sliding_attention")
            refuse_value(json, "layer_types", name, "full_attention and sliding_attention");
        if (name == "sliding_attention" && json.is_null("sliding_window"))
            json.refuse("layer_types has sliding_attention, but sliding_window is null");
        patterns.push_back(name == "full_attention" ? AttentionPattern{FullAttention{}}
                                                    : AttentionPattern{window});
    }
    if (patterns.size() != num_hidden_layers)
        json.refuse("layer_types has " + to_text(patterns.size()) + " entries for " +
                    to_text(num_hidden_layers) + " layers");
    return patterns;
}

std::string to_text(LongContextModelType type) {
    for (const auto& [name, named_type] : model_types)
        if (named_type == type) return name;
    throw std::invalid_argument("there is no such model type");
}

bool is_long_context_config(const JsonFile& json) {
    if (!json.has("model_type") || !model_types.contains(json.text("model_type"))) return false;
    const LongContextModelType type = model_types.at(json.text("model_type"));
    if (is_gemma(type)) return true;
    const std::size_t num_positions = json.size("max_position_embeddings");
    const auto patterns = read_patterns(json, type, json.size("num_hidden_layers"));  // L
    return std::any_of(patterns.begin(), patterns.end(), [&](const AttentionPattern& pattern) {
        const auto* sliding = std::get_if<SlidingWindow>(&pattern);
        return sliding && sliding->window < num_positions;
    });
}

LongContextConfig read_long_context_config(const JsonFile& json) try {
    const std::string name = json.text("model_type");
    if (!model_types.contains(name))
        refuse_value(json, "model_type", name, "mistral, gemma2 and gemma3_text");
    LongContextConfig result;
    const LongContextModelType type = result.model_type = model_types.at(name);
    refuse_unsupported(json, type);
    result.config = read_sizes(json, type);
    result.patterns = read_patterns(json, type, result.config.num_hidden_layers);
    result.rope_factor = read_rope_factor(json, type);
    result.query_pre_attn_scalar = static_cast<Real>(result.config.head_dim);
    if (type == LongContextModelType::gemma3_text)
        result.rope_local_base_freq = positive_or(json, "rope_local_base_freq", 10'000);
    if (!is_gemma(type)) return result;
    const bool gemma2 = type == LongContextModelType::gemma2;
    const std::optional<double> none;
    result.query_pre_attn_scalar = positive_or(json, "query_pre_attn_scalar", 256);
    result.attn_logit_softcapping =
        read_softcap(json, "attn_logit_softcapping", gemma2 ? std::optional(50.0) : none);
    result.final_logit_softcapping =
        read_softcap(json, "final_logit_softcapping", gemma2 ? std::optional(30.0) : none);
    return result;
} catch (const ShapeError& error) {
    json.refuse(error.what());
}

JsonMembers config_json(const LongContextConfig& given, DType dtype) {
    const Config& config = given.config;
    const bool gemma = given.is_gemma();
    const std::string name = !gemma                                             ? "Mistral"
                             : given.model_type == LongContextModelType::gemma2 ? "Gemma2"
                                                                                : "Gemma3";
    JsonMembers json =
        common_members(to_text(given.model_type), name + "ForCausalLM", config, dtype);
    json.insert(json.end(), {{"attention_bias", false},
                             {gemma ? "hidden_activation" : "hidden_act",
                              std::string(gemma ? "gelu_pytorch_tanh" : "silu")}});
    std::vector<std::string> layer_types;
    std::size_t window = 4096;
    for (const AttentionPattern& pattern : given.patterns) {
        const auto* sliding = std::get_if<SlidingWindow>(&pattern);
        if (sliding) window = sliding->window;
        layer_types.push_back(sliding ? "sliding_attention" : "full_attention");
    }
    json.insert(json.end(), {{"layer_types", layer_types}, {"sliding_window", window}});
    if (gemma) json.push_back({"query_pre_attn_scalar", double(given.query_pre_attn_scalar)});
    if (given.rope_local_base_freq)
        json.push_back({"rope_local_base_freq", double(*given.rope_local_base_freq)});
    if (given.rope_factor != 1)
        json.insert(json.end(), {{"rope_scaling.rope_type", std::string("linear")},
                                 {"rope_scaling.factor", double(given.rope_factor)}});
    if (given.attn_logit_softcapping)
        json.push_back({"attn_logit_softcapping", double(*given.attn_logit_softcapping)});
    if (given.final_logit_softcapping)
        json.push_back({"final_logit_softcapping", double(*given.final_logit_softcapping)});
    return json;
}

}  // namespace llm
