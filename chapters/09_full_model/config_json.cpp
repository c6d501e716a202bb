#include "chapters/09_full_model/config_json.hpp"

namespace llm {
namespace {

Config read_mini_llm(const JsonFile& json) {
    Config config = mini_llm_config();
    config.hidden_size = json.size("dim");
    config.num_hidden_layers = json.size("n_layers");
    config.num_attention_heads = json.size("n_heads");
    config.num_key_value_heads =
        json.has("n_kv_heads") ? json.size("n_kv_heads") : config.num_attention_heads;
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_seq_len");

    // This rule is in the code of Mini-LLM, not in its config.json.
    config.intermediate_size = round_up(4 * config.hidden_size, json.size("multiple_of"));
    return config;
}

// Refuses unsupported settings that would change the result.
void refuse_unsupported(const JsonFile& json, const std::string& type, const Config& config) {
    if (json.has("hidden_act") && json.text("hidden_act") != "silu")
        json.refuse("hidden_act " + json.text("hidden_act") + " is not supported, silu is");
    if (json.has("mlp_bias") && json.boolean("mlp_bias"))
        json.refuse("mlp_bias is not supported");
    if (json.has("quantization_config")) json.refuse("quantization_config is not supported");

    // Mistral has a window unless it is null, Qwen2 and Qwen3 only if use_sliding_window is
    // set. The default is 4096.
    const bool has_window = type == "mistral"
                                ? !json.is_null("sliding_window")
                                : type != "llama" && json.has("use_sliding_window") &&
                                      json.boolean("use_sliding_window");
    const std::size_t window = json.has("sliding_window") ? json.size("sliding_window") : 4096;
    if (has_window && window < config.max_position_embeddings)
        json.refuse("a sliding_window of " + to_text(window) + " is not supported");
}

// Reads Llama 3's scaling, a nested object.
Llama3Scaling read_scaling(const JsonFile& json, const std::string& inside) {
    const auto number = [&](const std::string& name) {
        return static_cast<Real>(json.number(inside + "." + name));
    };
    const Llama3Scaling scaling{number("factor"), number("low_freq_factor"),
                                number("high_freq_factor"),
                                number("original_max_position_embeddings")};
    if (!(scaling.factor >= 1 && scaling.low_freq_factor > 0 &&
          scaling.high_freq_factor > scaling.low_freq_factor &&
          scaling.original_max_position_embeddings > 0))
        json.refuse(inside + " needs a factor of at least 1, 0 < low_freq_factor < " +
                    "high_freq_factor and original_max_position_embeddings above 0");
    return scaling;
}

// Reads rope_theta, at the top level or, in newer files, in rope_parameters with the scaling.
void read_rope(const JsonFile& json, Config& config) {
    if (json.has("rope_parameters") && json.has("rope_scaling"))
        json.refuse("rope_parameters and rope_scaling contradict each other");
    const std::string inside = json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    const std::string theta = json.has("rope_parameters") && !json.has("rope_theta")
                                  ? inside + ".rope_theta"
                                  : "rope_theta";
    if (json.has(theta) || theta != "rope_theta")
        config.rope_theta = static_cast<Real>(json.number(theta));
    if (!(config.rope_theta > 0)) json.refuse("rope_theta must be above 0");
    if (!json.has(inside)) return;
    if (!json.is_object(inside)) json.refuse(inside + " must be an object");

    const std::string key = json.has(inside + ".rope_type") ? ".rope_type" : ".type";
    const std::string type = json.has(inside + key) ? json.text(inside + key) : "default";
    if (type == "llama3") {
        config.rope_scaling = read_scaling(json, inside);
    } else if (type != "default") {
        json.refuse(inside + " of type " + type + " is not supported");
    }
}

Config read_hugging_face(const JsonFile& json, const std::string& type) {
    Config config;
    config.hidden_size = json.size("hidden_size");
    config.intermediate_size = json.size("intermediate_size");
    config.num_hidden_layers = json.size("num_hidden_layers");
    config.num_attention_heads = json.size("num_attention_heads");
    config.num_key_value_heads = json.has("num_key_value_heads")
                                     ? json.size("num_key_value_heads")
                                     : config.num_attention_heads;
    config.head_dim = json.has("head_dim") ? json.size("head_dim") : type == "qwen3" ? 128 : 0;
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_position_embeddings");
    config.rms_norm_eps = static_cast<Real>(json.number("rms_norm_eps"));
    if (!(config.rms_norm_eps > 0)) json.refuse("rms_norm_eps must be above 0");
    config.tie_word_embeddings =
        json.has("tie_word_embeddings") && json.boolean("tie_word_embeddings");
    config.qk_norm = type == "qwen3" ? QKNormType::with_weights : QKNormType::none;

    // Qwen2 has biases in q_proj, k_proj and v_proj, and its config.json does not mention them.
    // In the other types, attention_bias means all four projections.
    const bool attention_bias = json.has("attention_bias") && json.boolean("attention_bias");
    config.attention_bias = type == "qwen2"  ? AttentionBias::qkv
                            : attention_bias ? AttentionBias::qkvo
                                             : AttentionBias::none;
    read_rope(json, config);
    refuse_unsupported(json, type, config);
    return config;
}

}  // namespace

bool is_mini_llm_config(const JsonFile& json) {
    return !json.has("model_type") && json.has("dim");
}

Config read_config(const JsonFile& json) try {
    const std::string type = is_mini_llm_config(json) ? "mini-llm" : json.text("model_type");
    if (type != "mini-llm" && type != "llama" && type != "mistral" && type != "qwen2" &&
        type != "qwen3")
        json.refuse("model_type " + type +
                    " is not supported; llama, mistral, qwen2, qwen3 and mini-llm are");
    return validate_model(type == "mini-llm" ? read_mini_llm(json)
                                             : read_hugging_face(json, type));
} catch (const ShapeError& error) {
    json.refuse(error.what());
}

JsonMembers config_json(const Config& config, DType dtype) {
    const bool qwen2 = config.attention_bias == AttentionBias::qkv;
    const bool qwen3 = config.qk_norm == QKNormType::with_weights;
    require(!(qwen2 && qwen3),
            "export: no supported model_type has biases of q, k and v and a QK norm");
    require(config.qk_norm != QKNormType::without_weights,
            "export: no supported model_type has a QK norm without weights (Llama 4 has)");
    const std::string type = qwen3 ? "qwen3" : qwen2 ? "qwen2" : "llama";
    const std::string name = qwen3 ? "Qwen3" : qwen2 ? "Qwen2" : "Llama";
    JsonMembers json = {{"architectures", std::vector<std::string>{name + "ForCausalLM"}},
                        {"model_type", type},
                        {"hidden_size", config.hidden_size},
                        {"intermediate_size", config.intermediate_size},
                        {"num_hidden_layers", config.num_hidden_layers},
                        {"num_attention_heads", config.num_attention_heads},
                        {"num_key_value_heads", config.num_key_value_heads},
                        {"head_dim", config.head_dim},
                        {"vocab_size", config.vocab_size},
                        {"max_position_embeddings", config.max_position_embeddings},
                        {"rms_norm_eps", static_cast<double>(config.rms_norm_eps)},
                        {"rope_theta", static_cast<double>(config.rope_theta)},
                        {"tie_word_embeddings", config.tie_word_embeddings},
                        {"attention_bias", config.attention_bias == AttentionBias::qkvo},
                        {"hidden_act", std::string("silu")},
                        {"torch_dtype", std::string(to_text(dtype))}};
    if (const auto& scaling = config.rope_scaling) {
        const auto original =
            static_cast<std::size_t>(scaling->original_max_position_embeddings);
        json.insert(json.end(),
                    {{"rope_scaling.rope_type", std::string("llama3")},
                     {"rope_scaling.factor", double(scaling->factor)},
                     {"rope_scaling.low_freq_factor", double(scaling->low_freq_factor)},
                     {"rope_scaling.high_freq_factor", double(scaling->high_freq_factor)},
                     {"rope_scaling.original_max_position_embeddings", original}});
    }
    return json;
}

}  // namespace llm
