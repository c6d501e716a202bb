#include "chapters/models/llama/config_json.hpp"

#include <algorithm>

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "chapters/models/llama/unread_settings.hpp"
#include "common/output/show.hpp"

namespace llm::models {

const std::vector<std::string> plain_model_types = {"llama", "mistral", "qwen2", "qwen3",
                                                    "mini-llm"};

Config read_sizes(const JsonFile& json, const ClassDefaults& defaults,
                  const std::function<std::string(const std::string& common)>& key) {
    std::string defaulted;
    const auto size = [&](const std::string& common, std::size_t otherwise) {
        const std::string name = key(common);
        if (name.empty()) return std::size_t{0};
        if (json.has(name) || otherwise == 0) return json.size(name);
        defaulted += (defaulted.empty() ? "" : ", ") + name + " " + to_text(otherwise);
        return otherwise;
    };
    Config config;
    config.hidden_size = size("hidden_size", defaults.hidden_size);
    config.intermediate_size =
        defaults.mlp_ratio > 0
            ? json.size_or(key("intermediate_size"), defaults.mlp_ratio * config.hidden_size)
            : size("intermediate_size", defaults.intermediate_size);
    config.num_hidden_layers = size("num_hidden_layers", defaults.num_hidden_layers);
    config.num_attention_heads = size("num_attention_heads", defaults.num_attention_heads);
    // Null means as many as query heads; so does a default that does not divide them.
    const std::size_t default_kv_heads = defaults.num_key_value_heads;
    config.num_key_value_heads = config.num_attention_heads;
    const std::string kv_heads = key("num_key_value_heads");
    const bool has_default = default_kv_heads > 0 && !json.is_null(kv_heads) &&
                             config.num_attention_heads % default_kv_heads == 0;
    if (json.has(kv_heads) || has_default)
        config.num_key_value_heads = size("num_key_value_heads", default_kv_heads);
    config.head_dim = json.size_or(key("head_dim"), defaults.head_dim);
    config.vocab_size = size("vocab_size", defaults.vocab_size);
    config.max_position_embeddings =
        size("max_position_embeddings", defaults.max_position_embeddings);
    config.rms_norm_eps = Real(json.positive_or(key("rms_norm_eps"), defaults.rms_norm_eps));
    config.tie_word_embeddings =
        json.boolean_or("tie_word_embeddings", defaults.tie_word_embeddings);
    config.qk_norm = QKNormType::none;
    if (!defaulted.empty())
        json.remark("missing, so the defaults of transformers are used: " + defaulted);
    return config;
}

namespace {

// Rejects a number that is not the one with which the setting has no effect.
void expect_number(const JsonFile& json, const std::string& key, double neutral) {
    if (json.has(key) && json.number(key) != neutral)
        json.reject_value(key, brief(json.number(key)), brief(neutral));
}

void expect_boolean(const JsonFile& json, const std::string& key, bool neutral) {
    if (json.has(key) && json.boolean(key) != neutral)
        json.reject_value(key, neutral ? "false" : "true", neutral ? "true" : "false");
}

Config read_mini_llm(const JsonFile& json) {
    Config config = mini_llm_config();
    config.hidden_size = json.size("dim");
    config.num_hidden_layers = json.size("n_layers");
    config.num_attention_heads = json.size("n_heads");
    config.num_key_value_heads =
        json.has("n_kv_heads") ? json.size("n_kv_heads") : config.num_attention_heads;
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_seq_len");

    // These are in the code of Mini-LLM, not in its config.json.
    expect_number(json, "rope_theta", static_cast<double>(config.rope_theta));
    expect_number(json, "norm_eps", 1e-6);
    config.intermediate_size = round_up(4 * config.hidden_size, json.size("multiple_of"));
    return config;
}

// Rejects settings with which the model would compute something that chapter 09's does not.
void reject_unsupported(const JsonFile& json, const Config& config) {
    const std::string act = "hidden_act";
    if (json.has(act) && json.text(act) != "silu" && json.text(act) != "swish")
        json.reject_value(act, json.text(act), "silu");
    for (const char* key : {"partial_rotary_factor", "rope_parameters.partial_rotary_factor",
                            "rope_scaling.partial_rotary_factor"})
        expect_number(json, key, 1);
    expect_boolean(json, "mlp_bias", false);
    expect_boolean(json, "use_qk_norm", config.qk_norm != QKNormType::none);
    if (config.attention_bias != AttentionBias::qkv) expect_boolean(json, "qkv_bias", false);
    json.ignore("qkv_bias");
}

// Whether some layers have a sliding window: Mistral unless it is null, Llama if it is there,
// Qwen2 and Qwen3 if use_sliding_window is set, all types if layer_types says so.
bool has_sliding_window(const JsonFile& json, const std::string& type) {
    bool slides = false;
    if (json.has("layer_types"))
        for (const auto& names : json.text_lists("layer_types"))
            for (const std::string& name : names) {
                slides = slides || name == "sliding_attention";
                if (name != "full_attention" && name != "sliding_attention")
                    json.reject_value("layer_types", name, "full_attention");
            }
    const bool has_key = json.has("use_sliding_window");
    const bool used = has_key && json.boolean("use_sliding_window");
    if (type == "mistral") return slides || !json.is_null("sliding_window");
    if (type == "llama") return slides || (json.has("sliding_window") && (used || !has_key));
    return slides || used;
}

// Rejects a window, unless it is as wide as the context. The default is 4096.
void reject_sliding_window(const JsonFile& json, const std::string& type,
                           std::size_t max_position_embeddings) {
    const std::size_t window = json.has("sliding_window") ? json.size("sliding_window") : 4096;
    if (has_sliding_window(json, type) && window < max_position_embeddings)
        json.reject_value(
            "sliding_window", to_text(window),
            "null, or at least max_position_embeddings " + to_text(max_position_embeddings) +
                (type == "mistral" ? " (chapter 17 reads windows: ./learn 17 --model)" : ""));
}

// Defaults of LlamaConfig, MistralConfig, Qwen2Config and Qwen3Config.
const std::map<std::string, ClassDefaults> class_defaults = {
    {"llama", {32000, 4096, 11008, 32, 32, 0, 2048}},
    {"mistral", {32000, 4096, 14336, 32, 32, 8, 131072}},
    {"qwen2", {151936, 4096, 22016, 32, 32, 32, 32768}},
    {"qwen3", {151936, 4096, 22016, 32, 32, 32, 32768, 128}}};

Config read_hugging_face(const JsonFile& json, const std::string& type) {
    const ClassDefaults& defaults = class_defaults_of(type);
    Config config = validate_model(
        read_sizes(json, defaults, [](const std::string& common) { return common; }));
    config.qk_norm = type == "qwen3" ? QKNormType::with_weights : QKNormType::none;

    // Qwen2 has biases in q_proj, k_proj and v_proj, and its config.json does not mention them.
    // In the other types, attention_bias means all four projections.
    const bool attention_bias = json.boolean_or("attention_bias", false);
    config.attention_bias = type == "qwen2"  ? AttentionBias::qkv
                            : attention_bias ? AttentionBias::qkvo
                                             : AttentionBias::none;
    const std::string rope = rope_object(json, false);
    config.rope_theta = read_rope_theta(json, rope, defaults.rope_theta);
    if (!read_simple_scaling(json, rope, config))
        json.reject_value(rope + ".rope_type", read_rope_type(json, rope),
                          "default, linear, dynamic and llama3");
    reject_unsupported(json, config);
    reject_sliding_window(json, type, config.max_position_embeddings);
    return config;
}

}  // namespace

const ClassDefaults& class_defaults_of(const std::string& plain_model_type) {
    return class_defaults.at(plain_model_type);
}

bool is_mini_llm_config(const JsonFile& json) {
    return json.has("model_type") ? json.text("model_type") == "mini-llm" : json.has("dim");
}

void rethrow_as_rejection(const JsonFile& json) {
    try {
        throw;
    } catch (const ValueError& error) {
        json.reject(error.what());
    } catch (const UnsupportedValue& error) {
        if (error.key == "model_type") throw;
        throw UnsupportedValue(std::string(error.what()) + " (--ignore " + error.key +
                                   " reads the file as if this were not there)",
                               error.key);
    }
}

Config read_config(const JsonFile& json) try {
    const std::string type = is_mini_llm_config(json) ? "mini-llm" : json.text("model_type");
    if (std::find(plain_model_types.begin(), plain_model_types.end(), type) ==
        plain_model_types.end()) {
        std::vector<std::string> types = plain_model_types;
        types.back() += " (./learn model reads other types)";
        json.reject_value("model_type", type, types);
    }
    const Config config = validate_model(type == "mini-llm" ? read_mini_llm(json)
                                                            : read_hugging_face(json, type));
    check_unread_settings(json);
    return config;
} catch (...) {
    rethrow_as_rejection(json);
}

JsonMembers common_members(const std::string& model_type, const std::string& architecture,
                           const Config& config, DType dtype) {
    return {{"architectures", std::vector<std::string>{architecture}},
            {"model_type", model_type},
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
            {"torch_dtype", std::string(to_text(dtype))}};
}

JsonMembers config_json(const Config& config, DType dtype) {
    const bool qwen2 = config.attention_bias == AttentionBias::qkv;
    const bool qwen3 = config.qk_norm == QKNormType::with_weights;
    require(!(qwen2 && qwen3),
            "export: no supported model_type has biases of q, k and v and a QK norm");
    require(config.qk_norm != QKNormType::without_weights,
            "export: no supported model_type has a QK norm without weights (Llama 4 has)");
    require(config.qk_norm != QKNormType::over_all_heads,
            "export: no supported model_type has a QK norm over all heads (OLMo 2 has)");
    const auto& rope_scaling = config.rope_scaling;
    const auto* divisors =
        rope_scaling ? std::get_if<FrequencyFactors>(&*rope_scaling) : nullptr;
    const Vector factors = divisors ? divisors->factors : Vector{};
    const bool linear =
        factors.size() > 0 && std::count(factors.begin(), factors.end(), factors(0)) ==
                                  std::ptrdiff_t(factors.size());
    require(!divisors || linear,
            "export: no supported rope_scaling has a factor for each frequency (a GGUF file's "
            "rope_freqs.weight has)");
    const std::string type = qwen3 ? "qwen3" : qwen2 ? "qwen2" : "llama";
    const std::string name = qwen3 ? "Qwen3" : qwen2 ? "Qwen2" : "Llama";
    JsonMembers json = common_members(type, name + "ForCausalLM", config, dtype);
    json.insert(json.end(), {{"attention_bias", config.attention_bias == AttentionBias::qkvo},
                             {"hidden_act", std::string("silu")}});
    if (linear)
        json.insert(json.end(), {{"rope_scaling.rope_type", std::string("linear")},
                                 {"rope_scaling.factor", double(factors(0))}});
    else if (rope_scaling)
        add_llama3_scaling(std::get<Llama3Scaling>(*rope_scaling), json);
    return json;
}

}  // namespace llm::models
