#include "chapters/models/llama/gguf_config.hpp"

#include "common/output/show.hpp"

namespace llm::models {

// They follow from tensors, or say how the file was made.
const std::set<std::string> unused_gguf_keys = {
    "vocab_size", "tensor_data_layout",
    // Of linear scaling, if the type is none; of YaRN, which is rejected.
    "rope.scaling.factor", "rope.scale_linear", "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    // Of embeddings of texts.
    "pooling_type"};

namespace {

const std::string architecture_key = "general.architecture";

// Reads the keys that begin with the name of the architecture: "llama.block_count".
class GgufConfig {
 public:
    explicit GgufConfig(const Gguf& file)
        : file_(file), architecture_(file.text(architecture_key)) {}

    Config read_common(const std::string& eps_key) const {
        if (file_.has("general.type") && file_.text("general.type") != "model")
            file_.reject("general.type " + file_.text("general.type") +
                         " is not supported; supported: model");
        Config config = validate_model(read_sizes());
        config.rms_norm_eps = above_0(eps_key);
        if (has("rope.freq_base")) config.rope_theta = above_0("rope.freq_base");
        config.tie_word_embeddings = !file_.has_tensor("output.weight");
        return config;
    }

    Config read() const {
        if (architecture_ != "llama" && architecture_ != "qwen2" && architecture_ != "qwen3")
            file_.reject(architecture_key + " " + architecture_ +
                         " is not supported; supported: llama, qwen2 and qwen3 "
                         "(./learn model reads other architectures)");
        reject_unsupported();
        Config config = read_common("attention.layer_norm_rms_epsilon");
        expect_head_dim("attention.value_length", config.head_dim);
        expect_head_dim("rope.dimension_count", config.head_dim);
        reject_sliding_window(config.max_position_embeddings);
        config.rope_scaling = rope_scaling(config.head_dim);
        config.attention_bias = attention_bias();
        config.qk_norm = architecture_ == "qwen3" ? QKNormType::with_weights : QKNormType::none;
        file_.reject_unread(full(""), unused_gguf_keys);
        return config;
    }

 private:
    const Gguf& file_;
    std::string architecture_;

    std::string full(const std::string& key) const { return architecture_ + "." + key; }
    bool has(const std::string& key) const { return file_.has(full(key)); }
    std::size_t size(const std::string& key) const { return file_.size(full(key)); }

    [[noreturn]] void reject(const std::string& key, const std::string& value,
                             const std::string& supported) const {
        file_.reject(full(key) + " " + value + " is not supported; supported: " + supported);
    }

    Config read_sizes() const {
        Config config;
        config.hidden_size = size("embedding_length");
        config.intermediate_size = size("feed_forward_length");
        config.num_hidden_layers = size("block_count");
        config.num_attention_heads = size("attention.head_count");
        config.num_key_value_heads = has("attention.head_count_kv")
                                         ? size("attention.head_count_kv")
                                         : config.num_attention_heads;
        config.head_dim = has("attention.key_length") ? size("attention.key_length") : 0;
        config.max_position_embeddings = size("context_length");
        config.vocab_size = vocab_size();
        return config;
    }

    // A number that is positive also in float32.
    Real above_0(const std::string& key) const {
        const double number = file_.number(full(key));
        if (!(number > 1e-30 && number < 1e30))
            file_.reject(full(key) + " must be above 0 and below 1e30, not " + brief(number));
        return static_cast<Real>(number);
    }

    // Rejects settings of other models with which the result would be another one. The value
    // without effect is given.
    void reject_unsupported() const {
        for (const auto& [key, neutral] : {std::pair{"attention.scale", 0},
                                           {"attention.clamp_kqv", 0},
                                           {"attention.max_alibi_bias", 0},
                                           {"attn_logit_softcapping", 0},
                                           {"final_logit_softcapping", 0},
                                           {"logit_scale", 1},
                                           {"embedding_scale", 1},
                                           {"residual_scale", 1},
                                           {"rope.scaling.attn_factor", 1}})
            if (has(key) && file_.number(full(key)) != neutral)
                reject(key, brief(file_.number(full(key))), to_text(neutral));
        if (has("expert_count") && file_.integer(full("expert_count")) != 0)
            reject("expert_count", to_text(file_.integer(full("expert_count"))),
                   "0, because a mixture of experts cannot be loaded");
        if (has("attention.causal") && !file_.boolean(full("attention.causal")))
            reject("attention.causal", "false", "true");
    }

    void reject_sliding_window(std::size_t max_position_embeddings) const {
        const std::string key = "attention.sliding_window";
        if (has(key) && file_.integer(full(key)) != 0 && size(key) < max_position_embeddings)
            reject(key, to_text(size(key)),
                   "0, or at least context_length " + to_text(max_position_embeddings));
    }

    std::size_t vocab_size() const {
        const std::string name = "token_embd.weight";
        const std::vector<std::size_t>& shape = file_.tensor(name).shape;
        if (shape.size() != 2)
            file_.reject("tensor " + name + " must be a matrix, not " + to_text(shape));
        return shape[0];
    }

    // The biases of the first layer; the others must have the same ones.
    AttentionBias attention_bias() const {
        if (!file_.has_tensor("blk.0.attn_q.bias")) return AttentionBias::none;
        return file_.has_tensor("blk.0.attn_output.bias") ? AttentionBias::qkvo
                                                          : AttentionBias::qkv;
    }

    void expect_head_dim(const std::string& key, std::size_t head_dim) const {
        if (has(key) && size(key) != head_dim)
            reject(key, to_text(size(key)),
                   "the head_dim of queries and keys, " + to_text(head_dim));
    }

    // The factor by which all frequencies are divided. Source: llama.cpp, whose default for
    // rope.scaling.type is linear.
    Real linear_factor() const {
        const std::string type_key = "rope.scaling.type";
        const std::string type = has(type_key) ? file_.text(full(type_key)) : "linear";
        if (type != "none" && type != "linear") reject(type_key, type, "none and linear");
        for (const std::string key : {"rope.scaling.factor", "rope.scale_linear"})
            if (has(key) && type == "linear") return above_0(key);
        return 1;
    }

    // Linear scaling, and Llama 3's as the factors of a tensor.
    std::optional<FrequencyFactors> rope_scaling(std::size_t head_dim) const {
        const bool has_factors = file_.has_tensor(gguf_rope_factors);
        const Real factor = linear_factor();
        if (!has_factors && factor == 1) return std::nullopt;
        Vector factors = xt::ones<Real>({head_dim / 2});
        if (has_factors) factors = file_.read(gguf_rope_factors, {head_dim / 2});
        for (Real& divisor : factors) {
            divisor *= factor;
            if (!(divisor > 0))
                file_.reject("tensor " + gguf_rope_factors +
                             " has a factor that is not above 0");
        }
        return FrequencyFactors{factors};
    }
};

}  // namespace

Config read_config(const Gguf& file) try {
    return GgufConfig(file).read();
} catch (const ValueError& error) {
    file.reject(error.what());
}

Config read_common_config(const Gguf& file, const std::string& eps_key) try {
    return GgufConfig(file).read_common(eps_key);
} catch (const ValueError& error) {
    file.reject(error.what());
}

RopeLayout rope_layout(const std::string& architecture) {
    return architecture == "llama" ? RopeLayout::interleaved : RopeLayout::split_half;
}

RopeLayout rope_layout(const Gguf& file) { return rope_layout(file.text(architecture_key)); }

}  // namespace llm::models
