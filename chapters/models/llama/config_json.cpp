#include "chapters/models/llama/config_json.hpp"

#include "common/output/show.hpp"

namespace llm::models {

const std::vector<std::string> plain_model_types = {"llama", "mistral", "qwen2", "qwen3",
                                                    "mini-llm"};

const std::set<std::string> unused_config_keys = {
    // Set by libraries.
    "architectures", "auto_map", "dtype", "model_type", "torch_dtype", "transformers_version",
    "transformers.js_config", "unsloth_fixed", "unsloth_version", "_name_or_path",
    "_attn_implementation", "attn_implementation", "cache_implementation",
    "gradient_checkpointing", "use_cache", "is_llama_config", "max_sequence_length",
    "model_max_length", "tokenizer_class", "return_dict", "torchscript",
    "pretraining_tp",  // splits products of matrices
    // Read with the tokenizer.
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "decoder_start_token_id",
    // Training.
    "attention_dropout", "attn_pdrop", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob",
    "initializer_range", "output_router_logits", "resid_pdrop", "residual_dropout",
    "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "z_loss_coef",
    // Generation.
    "do_sample", "max_length", "max_new_tokens", "repetition_penalty", "temperature", "top_k",
    "top_p",
    // Only with a sliding window that is used (Qwen2, Qwen3).
    "max_window_layers"};

std::string rope_object(const JsonFile& json, bool may_differ_by_layer_type) {
    const std::string parameters = "rope_parameters";
    if (json.has(parameters) && json.has("rope_scaling"))
        json.reject("rope_parameters and rope_scaling contradict each other");
    const std::string inside = json.has(parameters) ? parameters : "rope_scaling";
    if (json.has(inside) && !json.is_object(inside)) json.reject(inside + " must be an object");
    const std::string full = inside + ".full_attention";
    const bool differs = json.has(full) || json.has(inside + ".sliding_attention");
    if (differs && !may_differ_by_layer_type)
        json.reject(full + " is not supported; supported: one RoPE for all layers");
    return differs ? full : inside;
}

Real read_rope_theta(const JsonFile& json, const std::string& inside, double otherwise) {
    const std::string outer = "rope_theta", inner = inside + ".rope_theta";
    if (json.has(outer) && json.has(inner) && json.number(outer) != json.number(inner))
        json.reject("rope_theta " + brief(json.number(outer)) + " and " + inner + " " +
                    brief(json.number(inner)) + " contradict each other");
    double theta = otherwise;
    if (json.has(outer)) {
        theta = json.number(outer);
    } else if (inside.starts_with("rope_parameters")) {
        theta = json.number(inner);
    }
    if (!(theta > 0)) json.reject("rope_theta must be above 0");
    return static_cast<Real>(theta);
}

std::string read_rope_type(const JsonFile& json, const std::string& inside) {
    const std::string rope_type = inside + ".rope_type", type = inside + ".type";
    if (json.has(rope_type) && json.has(type) && json.text(rope_type) != json.text(type))
        json.reject(rope_type + " " + json.text(rope_type) + " and " + type + " " +
                    json.text(type) + " contradict each other");
    for (const std::string& key : {rope_type, type})
        if (json.has(key)) return json.text(key);
    if (inside == "rope_scaling" || json.has(inside + ".factor"))
        json.reject(inside + " has no rope_type");
    return "default";
}

namespace {

// Rejects a number that is not the one with which the setting has no effect.
void expect_number(const JsonFile& json, const std::string& key, double neutral) {
    if (json.has(key) && json.number(key) != neutral)
        json.reject_value(key, brief(json.number(key)), brief(neutral));
}

void expect_null(const JsonFile& json, const std::string& key) {
    if (json.has(key)) json.reject_value(key, brief(json.number(key)), "null, or no such key");
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

// Rejects settings of other model types (Granite, Cohere, Gemma 2, OLMo, MiniCPM, Phi) with
// which the model would compute something else.
void reject_unsupported(const JsonFile& json, const Config& config) {
    for (const char* key : {"hidden_act", "hidden_activation"})
        if (json.has(key) && json.text(key) != "silu")
            json.reject_value(key, json.text(key), "silu");
    for (const char* key :
         {"partial_rotary_factor", "rope_parameters.partial_rotary_factor",
          "rope_scaling.partial_rotary_factor", "embedding_multiplier", "residual_multiplier",
          "logits_scaling", "logit_scale", "scale_emb"})
        expect_number(json, key, 1);
    for (const char* key :
         {"attention_multiplier", "query_pre_attn_scalar", "clip_qkv", "attn_logit_softcapping",
          "final_logit_softcapping", "scale_depth", "dim_model_base"})
        expect_null(json, key);
    for (const char* key :
         {"mlp_bias", "qk_layernorm", "use_parallel_residual", "use_bidirectional_attention"})
        expect_boolean(json, key, false);
    expect_boolean(json, "use_qk_norm", config.qk_norm != QKNormType::none);
    expect_boolean(json, "is_causal", true);
    for (const char* key : {"quantization_config", "no_rope_layers"})
        if (json.has(key)) json.reject(key, "is not supported");
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
        json.reject(inside + " needs a factor of at least 1, 0 < low_freq_factor < " +
                    "high_freq_factor and original_max_position_embeddings above 0");
    return scaling;
}

// Reads rope_theta and the scaling, in rope_scaling or, since transformers 5, rope_parameters.
void read_rope(const JsonFile& json, Config& config) {
    const std::string inside = rope_object(json, false);
    config.rope_theta = read_rope_theta(json, inside, double(config.rope_theta));
    if (!json.has(inside)) return;
    const std::string type = read_rope_type(json, inside);
    if (type == "llama3") {
        config.rope_scaling = read_scaling(json, inside);
    } else if (type != "default") {
        json.reject_value(inside + ".rope_type", type, "default and llama3");
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
    if (!(config.rms_norm_eps > 0)) json.reject("rms_norm_eps must be above 0");
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
    reject_unsupported(json, config);
    reject_sliding_window(json, type, config.max_position_embeddings);
    return config;
}

}  // namespace

bool is_mini_llm_config(const JsonFile& json) {
    return json.has("model_type") ? json.text("model_type") == "mini-llm" : json.has("dim");
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
    json.reject_unread(unused_config_keys);
    return config;
} catch (const ValueError& error) {
    json.reject(error.what());
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
    require(!rope_scaling || std::holds_alternative<Llama3Scaling>(*rope_scaling),
            "export: no supported rope_scaling has a factor for each frequency (a GGUF file's "
            "rope_freqs.weight or linear scaling has)");
    const std::string type = qwen3 ? "qwen3" : qwen2 ? "qwen2" : "llama";
    const std::string name = qwen3 ? "Qwen3" : qwen2 ? "Qwen2" : "Llama";
    JsonMembers json = common_members(type, name + "ForCausalLM", config, dtype);
    json.insert(json.end(), {{"attention_bias", config.attention_bias == AttentionBias::qkvo},
                             {"hidden_act", std::string("silu")}});
    if (rope_scaling) {
        const auto* scaling = std::get_if<Llama3Scaling>(&*rope_scaling);
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

}  // namespace llm::models
