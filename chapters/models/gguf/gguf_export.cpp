#include "chapters/models/gguf/gguf_export.hpp"

#include <algorithm>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "common/files/gguf.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {
namespace {

bool is_qwen3(const Config& config) { return config.qk_norm == QKNormType::with_weights; }

// Throws ValueError if llama.cpp has no such model.
void check_exportable(const Model& model) {
    const Config& config = model.config;
    require(config.qk_norm != QKNormType::without_weights,
            "export: llama.cpp's architectures llama, qwen2 and qwen3 have no QK norm without "
            "weights (Llama 4 has)");
    require(config.qk_norm != QKNormType::over_all_heads,
            "export: llama.cpp's architectures llama, qwen2 and qwen3 have no QK norm over all "
            "heads (OLMo 2 has)");
    require(!is_qwen3(config) || config.attention_bias == AttentionBias::none,
            "export: llama.cpp's architecture qwen3 has no attention biases");
    check_described(model);
}

// The divisors of RoPE's frequencies; 1 each without scaling.
Vector frequency_factors(const Config& config) {
    const Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);
    if (!config.rope_scaling) return xt::ones_like(frequencies);
    if (const auto* given = std::get_if<FrequencyFactors>(&*config.rope_scaling))
        return given->factors;
    return frequencies / rope_frequencies(config);
}

// Does one factor divide all frequencies? It is written as metadata, others as a tensor.
bool is_linear(const Vector& factors) {
    return std::all_of(factors.begin(), factors.end(),
                       [&](Real factor) { return factor == factors(0); });
}

// llama.cpp's architecture for a model. Its llama has optional biases. Its qwen2 has those of
// q, k and v, an o_proj of (C, C), and no factors for RoPE's frequencies.
std::string architecture_of(const Config& config) {
    if (is_qwen3(config)) return "qwen3";
    const bool is_qwen2 = config.attention_bias == AttentionBias::qkv &&
                          config.num_attention_heads * config.head_dim == config.hidden_size &&
                          is_linear(frequency_factors(config));
    return is_qwen2 ? "qwen2" : "llama";
}

GgufMetadata model_metadata(const Config& config, DType dtype) {
    const std::string architecture = architecture_of(config);
    GgufMetadata metadata = {{"general.architecture", architecture}};
    if (block_size(dtype) > 1)
        metadata.emplace_back("general.quantization_version", std::int64_t{2});
    for (const auto& entry : size_metadata(architecture, config)) metadata.push_back(entry);
    if (const Vector factors = frequency_factors(config);
        is_linear(factors) && factors(0) != 1) {
        metadata.emplace_back(architecture + ".rope.scaling.type", std::string("linear"));
        metadata.emplace_back(architecture + ".rope.scaling.factor", double(factors(0)));
    }
    return metadata;
}

GgufTensorList model_tensors(const Model& model, DType dtype) {
    GgufTensorList tensors(dtype);
    GgufTensorWriter writer{tensors};
    // llama.cpp uses the embedding as the head if there is no other.
    visit_model(model, gguf_names, rope_layout(architecture_of(model.config)), writer);
    if (const Vector factors = frequency_factors(model.config); !is_linear(factors)) {
        require(!is_qwen3(model.config),
                "export: llama.cpp's architecture qwen3 has no {} (Llama 3's RoPE scaling)",
                gguf_rope_factors);
        tensors.add_vector(gguf_rope_factors, factors);
    }
    return tensors;
}

// "model.layers.0.self_attn.q_proj" as "blk.0.attn_q".
std::string gguf_name_of(const std::string& name) {
    const std::string layers = "model.layers.";
    const std::size_t end = name.find('.', layers.size());
    const std::string number = name.substr(layers.size(), end - layers.size());
    const std::string module = name.substr(name.rfind('.') + 1);
    const LayerNames& names = gguf_names.layers;
    const std::vector<std::pair<std::string, std::string>> modules = {
        {"q_proj", names.q_proj},           {"k_proj", names.k_proj},
        {"v_proj", names.v_proj},           {"o_proj", names.o_proj},
        {"gate_proj", names.mlp.gate_proj}, {"up_proj", names.mlp.up_proj},
        {"down_proj", names.mlp.down_proj}};
    for (const auto& [ours, theirs] : modules)
        if (module == ours) return gguf_names.layer + number + "." + theirs;
    throw std::logic_error("an adapter of " + name);
}

}  // namespace

void reject_existing(const std::string& file) {
    if (std::filesystem::exists(file))
        throw FileError(file + ": exists already and is not overwritten");
}

void GgufTensorList::add(const std::string& name, DType dtype,
                         const std::vector<std::size_t>& shape,
                         std::span<const Real> values) try {
    const std::size_t in_features = shape.back(), num_rows = values.size() / in_features;
    const std::size_t row_size = bytes_per_row(dtype, in_features);
    std::vector<std::byte>& bytes = memory_.emplace_back(num_rows * row_size);
    for (std::size_t row = 0; row < num_rows; ++row)
        quantize_row(dtype, values.subspan(row * in_features, in_features),
                     std::span(bytes).subspan(row * row_size, row_size));
    tensors_.push_back({name, {dtype, shape, bytes}});
} catch (const ValueError& error) {
    require(false, "export: tensor {}: {}", name, error.what());
}

void GgufTensorList::add_vector(const std::string& name, const Vector& values) {
    add(name, DType::float32, {values.size()}, {values.data(), values.size()});
}

void GgufTensorList::add_rows(const std::string& name, const std::vector<std::size_t>& shape,
                              std::span<const Real> values) {
    const DType dtype = stored_dtype(dtype_, shape.back());
    if (dtype != dtype_) in_other_dtype_.push_back({name, dtype});
    add(name, dtype, shape, values);
}

void GgufTensorList::add_matrix(const std::string& name, const Matrix& weights) {
    add_rows(name, {weights.shape(0), weights.shape(1)}, {weights.data(), weights.size()});
}

void GgufTensorList::add_linear(const std::string& name, const Linear& linear) {
    add_matrix(name + ".weight", linear.weight);
    if (linear.bias) add_vector(name + ".bias", *linear.bias);
}

Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads) {
    const std::size_t num_rows = projection.weight.shape(0), head_dim = num_rows / num_heads;
    Linear reordered = projection;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::size_t source = split_half_index(row, head_dim);
        xt::view(reordered.weight, row) = xt::view(projection.weight, source);
        if (projection.bias) (*reordered.bias)(row) = (*projection.bias)(source);
    }
    return reordered;
}

GgufMetadata size_metadata(const std::string& architecture, const Config& config,
                           const std::string& eps_key) {
    GgufMetadata metadata;
    const auto add_size = [&](const std::string& key, std::size_t size) {
        metadata.emplace_back(architecture + "." + key, static_cast<std::int64_t>(size));
    };
    add_size("block_count", config.num_hidden_layers);
    add_size("context_length", config.max_position_embeddings);
    add_size("embedding_length", config.hidden_size);
    add_size("feed_forward_length", config.intermediate_size);
    add_size("vocab_size", config.vocab_size);
    add_size("attention.head_count", config.num_attention_heads);
    add_size("attention.head_count_kv", config.num_key_value_heads);
    add_size("attention.key_length", config.head_dim);
    add_size("attention.value_length", config.head_dim);
    add_size("rope.dimension_count", config.head_dim);
    metadata.emplace_back(architecture + "." + eps_key, double(config.rms_norm_eps));
    metadata.emplace_back(architecture + ".rope.freq_base", double(config.rope_theta));
    return metadata;
}

std::vector<TensorInOtherDType> export_gguf(const Model& model, const Tokenizer& tokenizer,
                                            const std::string& file, DType dtype) {
    reject_existing(file);
    check_exportable(model);
    GgufMetadata metadata = model_metadata(model.config, dtype);
    for (const auto& entry : models::tokenizer_metadata(tokenizer, model.config.vocab_size))
        metadata.push_back(entry);
    const GgufTensorList tensors = model_tensors(model, dtype);
    write_gguf(file, metadata, tensors.tensors());
    return tensors.in_other_dtype();
}

void export_gguf_adapter(const LoraAdapter& adapter, const Model& model,
                         const std::string& file) {
    reject_existing(file);
    check_exportable(model);
    check_adapter(model, adapter);
    const auto& [config, layers] = adapter;
    const std::string architecture = architecture_of(model.config);
    const double alpha = double(config.scaling()) * double(config.r);
    const GgufMetadata metadata = {{"general.architecture", architecture},
                                   {"general.type", std::string("adapter")},
                                   {"adapter.type", std::string("lora")},
                                   {"adapter.lora.alpha", alpha}};
    const bool is_interleaved = rope_layout(architecture) == RopeLayout::interleaved;
    GgufTensorList tensors(DType::float32);
    for (const auto& [name, lora_A, lora_B] : layers) {
        // The rows of B are those of the weight, and are reordered as they are.
        Linear rows{lora_B, {}};
        if (is_interleaved && name.ends_with("q_proj"))
            rows = split_half_to_interleaved(rows, model.config.num_attention_heads);
        if (is_interleaved && name.ends_with("k_proj"))
            rows = split_half_to_interleaved(rows, model.config.num_key_value_heads);
        const std::string weight = gguf_name_of(name) + ".weight";
        tensors.add_matrix(weight + ".lora_a", lora_A);
        tensors.add_matrix(weight + ".lora_b", rows.weight);
    }
    write_gguf(file, metadata, tensors.tensors());
}

}  // namespace llm::models
