#include "chapters/models/encoders/t5_gguf.hpp"

#include "chapters/models/encoders/t5_tensors.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"

namespace llm::models {
namespace {

const std::string t5_architecture = "t5encoder",
                  t5_eps_key = "attention.layer_norm_rms_epsilon",
                  t5_buckets_key = "attention.relative_buckets_count";

struct T5GgufWriter : GgufTensorWriter {
    void matrix(const std::string& name, const Matrix& weight, std::size_t out,
                std::size_t in) {
        if (name.ends_with(t5_gguf_names().encoder.position_bias))
            list.add_float32(name + ".weight", {out, in}, {weight.data(), weight.size()});
        else
            list.add_matrix(name + ".weight", weight);
    }
};

// Its graph has a fixed distance, and ReLU without a gate or GELU with tanh and one.
void check_t5_gguf(const T5FamilyConfig& config) {
    require(config.relative_attention_max_distance == 128,
            "export: llama.cpp's t5encoder has distances up to 128, not {}",
            config.relative_attention_max_distance);
    const auto is = [&](const Activation& other) {
        return config.activation.function == other.function;
    };
    require(config.is_gated_act ? is(GELU) || is(GELUTanh) : is(ReLU),
            "export: llama.cpp's t5encoder has ReLU or gated GELU, not {}{}",
            config.is_gated_act ? "gated " : "", config.activation.name);
}

}  // namespace

const T5Names& t5_gguf_names() {
    static const T5Names names = {"token_embd",
                                  "output",
                                  {"enc.blk.",
                                   {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_o"},
                                   {},
                                   "attn_rel_b",
                                   "ffn_norm",
                                   "ffn_up",
                                   {"ffn_gate", "ffn_up", "ffn_down"},
                                   "enc.output_norm"},
                                  {}};
    return names;
}

std::vector<TensorInOtherDType> export_gguf(const T5FamilyModel& t5, const std::string& file,
                                            DType dtype, const GgufMetadata& tokenizer) {
    reject_existing(file);
    T5FamilyConfig config = t5.config;
    config.has_decoder = false;
    check_t5_gguf(config);
    GgufMetadata metadata = {{"general.architecture", t5_architecture}};
    if (block_size(dtype) > 1)
        metadata.emplace_back("general.quantization_version", std::int64_t{2});
    const auto add = [&](const std::string& key, std::size_t size) {
        metadata.emplace_back(t5_architecture + "." + key, static_cast<std::int64_t>(size));
    };
    add("context_length", 512);  // of the texts in T5's training; nothing depends on it
    add("embedding_length", config.sizes.hidden_size);
    add("feed_forward_length", config.sizes.intermediate_size);
    add("block_count", config.sizes.num_hidden_layers);
    add("attention.head_count", config.sizes.num_attention_heads);
    add("attention.key_length", config.sizes.head_dim);
    add("attention.value_length", config.sizes.head_dim);
    add(t5_buckets_key, config.relative_attention_num_buckets);
    metadata.emplace_back(t5_architecture + "." + t5_eps_key,
                          double(config.sizes.rms_norm_eps));
    // Without this key, which its converter does not write, llama_decode (not llama_encode)
    // masks later tokens.
    metadata.emplace_back(t5_architecture + ".attention.causal", false);
    metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
    GgufTensorList list(dtype);
    T5GgufWriter writer{{list}};
    visit_t5(t5.model, config, t5_gguf_names(), writer);
    write_gguf(file, metadata, list.tensors());
    return list.in_other_dtype();
}

T5FamilyModel load_t5_gguf(const std::string& path) try {
    const Gguf file(path);
    const GgufSettings gguf{file, t5_architecture};
    const T5Names& names = t5_gguf_names();
    T5FamilyConfig config;
    config.architecture = "T5EncoderModel";
    config.has_decoder = config.has_lm_head = false;
    config.sizes.vocab_size = file.tensor(names.shared + ".weight").shape[0];
    config.sizes.hidden_size = gguf.size("embedding_length");
    config.sizes.intermediate_size = gguf.size("feed_forward_length");
    config.sizes.num_hidden_layers = config.num_decoder_layers = gguf.size("block_count");
    config.sizes.num_attention_heads = gguf.size("attention.head_count");
    config.sizes.head_dim = gguf.size("attention.key_length");
    config.sizes.rms_norm_eps = gguf.positive(t5_eps_key);
    config.sizes.tie_word_embeddings = true;
    config.relative_attention_num_buckets = gguf.size(t5_buckets_key);
    if (gguf.size("attention.value_length") != config.sizes.head_dim)
        file.reject(gguf.full("attention.value_length") + " is not attention.key_length");
    gguf.size("context_length");
    for (const char* unused : {"attention.layer_norm_epsilon", "vocab_size"})
        if (gguf.has(unused)) file.number(gguf.full(unused));
    const bool says_causal = gguf.has("attention.causal");
    if (says_causal) file.boolean(gguf.full("attention.causal"));
    reject_unread_settings(file, gguf.full(""), !says_causal);  // it must be false
    relative_position_bucket(0, true, config.relative_attention_num_buckets, 128);
    config.is_gated_act = file.has_tensor(names.encoder.layer + "0.ffn_gate.weight");
    config.activation = config.is_gated_act ? GELUTanh : ReLU;
    file.reject_other_types();
    // Memory for the layers is allocated only after this.
    file.tensor(names.encoder.layer + std::to_string(config.sizes.num_hidden_layers - 1) + "." +
                names.encoder.ffn_norm + ".weight");
    GgufTensors tensors(file);
    T5FamilyModel t5{config, make_empty_t5(config)};
    TensorReader<GgufTensors> reader{tensors};
    visit_t5(t5.model, config, names, reader);
    tensors.reject_unread();
    return t5;
} catch (const ValueError& error) {
    throw FileError(path + ": " + error.what());
}

}  // namespace llm::models
