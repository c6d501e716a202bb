#include "chapters/models/llama/gguf_config.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "common/output/show.hpp"

namespace llm::models {

namespace {

// They follow from tensors, or say how the file was made.
const std::set<std::string> unused_gguf_keys = {
    "vocab_size", "tensor_data_layout",
    // Of linear scaling, if the type is none; of YaRN, which is rejected.
    "rope.scaling.factor", "rope.scale_linear", "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    // Of embeddings of texts.
    "pooling_type", "decoder_start_token_id", "deepstack_mapping"};

// What llama_model_save_to_file writes for the settings that an architecture does not have: the
// defaults of llama.cpp where they are not 0. Source: llama-hparams.h (libllama 0.5.0, of
// node-llama-cpp 3.22.1).
const std::map<std::string, double> llama_cpp_defaults = {
    {"activation.situ_beta", 1},
    {"attention.causal", 1},
    {"attention.rope_pattern", 1},
    {"attn_logit_softcapping", 50},
    {"expert_group_scale", Real(0.05)},
    {"final_logit_softcapping", 30},
    {"kda.gate_lower_bound", -std::numeric_limits<double>::infinity()},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_beta_fast", 32},
    {"rope.scaling.yarn_beta_slow", 1},
    {"rope.scaling.yarn_ext_factor", -1},
    {"router_logit_softcapping", 30},
    {"token_shift_count", 2}};

const std::string architecture_key = "general.architecture";

// Whether a number has llama.cpp's default, or 0, which means the same.
bool has_default(const Gguf& file, const std::string& prefix, const std::string& key) {
    const std::optional<double> value = file.any_number(prefix + key);
    const auto found = llama_cpp_defaults.find(key);
    return value &&
           (*value == 0 || (found != llama_cpp_defaults.end() && *value == found->second));
}

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
        const std::string kv_heads = "attention.head_count_kv";
        if (has(kv_heads)) size(kv_heads);  // not one for each layer
        Config config = read_common("attention.layer_norm_rms_epsilon");
        expect_head_dim("attention.value_length", config.head_dim);
        expect_head_dim("rope.dimension_count", config.head_dim);
        reject_sliding_window(config.max_position_embeddings);
        config.rope_scaling = rope_scaling(config.head_dim);
        config.attention_bias = attention_bias();
        config.qk_norm = architecture_ == "qwen3" ? QKNormType::with_weights : QKNormType::none;
        reject_unread_settings(file_, full(""));
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
        // A model whose layers all have experts may lack it.
        const std::string dense = "feed_forward_length", expert = "expert_" + dense;
        config.intermediate_size = size(has(dense) || !has(expert) ? dense : expert);
        config.num_hidden_layers = size("block_count") - num_nextn_layers();
        config.num_attention_heads = size("attention.head_count");
        config.num_key_value_heads = has("attention.head_count_kv")
                                         ? largest("attention.head_count_kv")
                                         : config.num_attention_heads;
        config.head_dim = has("attention.key_length") ? size("attention.key_length") : 0;
        config.max_position_embeddings = size("context_length");
        config.vocab_size = vocab_size();
        return config;
    }

    // A size, or the largest of one for each layer. These do not count as read: a family must
    // read them, or they are rejected.
    std::size_t largest(const std::string& key) const {
        const auto* sizes =
            std::get_if<std::vector<std::int64_t>>(&file_.metadata().at(full(key)));
        const std::int64_t most =
            sizes && !sizes->empty() ? *std::max_element(sizes->begin(), sizes->end()) : 0;
        return most > 0 && most < 1 << 24 ? std::size_t(most) : size(key);
    }

    // The last of the layers, for multi-token prediction, are not read.
    std::size_t num_nextn_layers() const {
        const std::string key = "nextn_predict_layers";
        if (file_.any_number(full(key)).value_or(0) == 0) return 0;
        if (size(key) >= size("block_count"))
            reject(key, to_text(size(key)), "fewer than block_count");
        return size(key);
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
                                           {"rope.scaling.attn_factor", 1}}) {
            if (!has(key) || has_default(file_, full(""), key)) continue;
            if (file_.number(full(key)) != neutral)
                reject(key, brief(file_.number(full(key))), to_text(neutral));
        }
        if (has("expert_count") && file_.integer(full("expert_count")) != 0)
            reject("expert_count", to_text(file_.integer(full("expert_count"))),
                   "0, because a mixture of experts cannot be loaded");
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
            if (has(key) && type == "linear" && file_.number(full(key)) != 0)
                return above_0(key);
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

void reject_unread_settings(const Gguf& file, const std::string& prefix, bool causal) {
    std::set<std::string> unused = unused_gguf_keys;
    for (const auto& [key, value] : llama_cpp_defaults)
        if (has_default(file, prefix, key)) unused.insert(key);
    const auto all_zero = [](const auto& value) {
        if constexpr (requires { value.front() * 2.0; })
            return std::all_of(value.begin(), value.end(), [](auto each) { return each == 0; });
        return false;
    };
    for (const char* list :
         {"rope.dimension_sections", "swiglu_clamp_exp", "swiglu_clamp_shexp"})
        if (const auto found = file.metadata().find(prefix + list);
            found != file.metadata().end() && std::visit(all_zero, found->second))
            unused.insert(list);
    if ((file.any_number(prefix + "attention.causal").value_or(1) != 0) != causal)
        file.reject(prefix + "attention.causal " + (causal ? "false" : "true") +
                    " is not supported; supported: " + (causal ? "true" : "false"));
    // Of layers with a window, if there are any.
    const bool has_windows =
        file.any_number(prefix + "attention.sliding_window").value_or(0) != 0;
    for (const std::string key : {"attention.key_length", "attention.value_length",
                                  "rope.dimension_count", "rope.freq_base"})
        if (!has_windows ||
            file.any_number(prefix + key + "_swa") == file.any_number(prefix + key))
            unused.insert(key + "_swa");
    file.reject_unread(prefix, unused);
}

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
