#include "chapters/16_quantization/gguf_export.hpp"

#include <algorithm>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/09_full_model/gguf_config.hpp"
#include "chapters/09_full_model/tensor_names.hpp"
#include "chapters/16_quantization/gguf_tokenizer_export.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "common/files/gguf.hpp"
#include "common/tensors/block_types.hpp"

namespace llm {
namespace {

bool is_qwen3(const Config& config) { return config.qk_norm == QKNormType::with_weights; }

// Throws ShapeError if a layer is not as the configuration, the only thing that is written of
// it besides weights, describes it.
void check_layer(const Config& config, const PreNormBlock& layer, std::size_t n) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = layer.self_attn.projections;
    const auto& [gate_proj, up_proj, down_proj, activation] = layer.mlp;
    const bool qkv_bias = config.attention_bias != AttentionBias::none;
    const bool o_bias = config.attention_bias == AttentionBias::qkvo;
    require(layer.self_attn.qk_norm.index() == std::size_t(config.qk_norm),
            "export: the QK norm of layer {} is not that of the configuration", n);
    require(q_proj.bias.has_value() == qkv_bias && k_proj.bias.has_value() == qkv_bias &&
                v_proj.bias.has_value() == qkv_bias && o_proj.bias.has_value() == o_bias,
            "export: the attention biases of layer {} are not those of the configuration", n);
    require(!gate_proj.bias && !up_proj.bias && !down_proj.bias,
            "export: the MLP of layer {} has a bias, which cannot be loaded", n);
    require(
        activation.name == SiLU.name,
        "export: llama.cpp's architectures llama, qwen2 and qwen3 have the activation silu, "
        "not {}",
        activation.name);
}

// Throws ShapeError if llama.cpp has no such model.
void check_exportable(const Model& model) {
    const Config& config = model.config;
    require(config.qk_norm != QKNormType::without_weights,
            "export: llama.cpp's architectures llama, qwen2 and qwen3 have no QK norm without "
            "weights (Llama 4 has)");
    require(!is_qwen3(config) || config.attention_bias == AttentionBias::none,
            "export: llama.cpp's architecture qwen3 has no attention biases");
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        check_layer(config, model.layers[n], n);
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

// In models of architecture llama, llama.cpp rotates interleaved pairs, in others split halves,
// as here.
void add_attention(const std::string& layer, const AttentionLayer& attention, RopeLayout layout,
                   GgufTensorList& tensors) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = attention.projections;
    if (layout == RopeLayout::interleaved) {
        tensors.add_linear(layer + gguf_names.q_proj,
                           split_half_to_interleaved(q_proj, attention.num_attention_heads));
        tensors.add_linear(layer + gguf_names.k_proj,
                           split_half_to_interleaved(k_proj, attention.num_key_value_heads));
    } else {
        tensors.add_linear(layer + gguf_names.q_proj, q_proj);
        tensors.add_linear(layer + gguf_names.k_proj, k_proj);
    }
    if (const auto* qk_norm = std::get_if<QKNormWithWeights>(&attention.qk_norm)) {
        tensors.add_vector(layer + gguf_names.q_norm + ".weight", qk_norm->q_weight);
        tensors.add_vector(layer + gguf_names.k_norm + ".weight", qk_norm->k_weight);
    }
    tensors.add_linear(layer + gguf_names.v_proj, v_proj);
    tensors.add_linear(layer + gguf_names.o_proj, o_proj);
}

GgufTensorList model_tensors(const Model& model, DType dtype) {
    const RopeLayout layout = rope_layout(architecture_of(model.config));
    GgufTensorList tensors(dtype);
    tensors.add_matrix(gguf_names.embed_tokens + ".weight", model.embed_tokens);
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const auto& [self_attn, mlp, attention_norm, ffn_norm] = model.layers[n];
        const std::string layer = gguf_names.layer + to_text(n) + ".";
        tensors.add_vector(layer + gguf_names.attention_norm + ".weight",
                           attention_norm.weight);
        add_attention(layer, self_attn, layout, tensors);
        tensors.add_vector(layer + gguf_names.ffn_norm + ".weight", ffn_norm.weight);
        tensors.add_linear(layer + gguf_names.gate_proj, mlp.gate_proj);
        tensors.add_linear(layer + gguf_names.up_proj, mlp.up_proj);
        tensors.add_linear(layer + gguf_names.down_proj, mlp.down_proj);
    }
    tensors.add_vector(gguf_names.norm + ".weight", model.norm.weight);
    // llama.cpp uses the embedding as the head if there is no other.
    if (model.lm_head) tensors.add_matrix(gguf_names.lm_head + ".weight", *model.lm_head);
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
    const std::vector<std::pair<std::string, std::string>> modules = {
        {"q_proj", gguf_names.q_proj},       {"k_proj", gguf_names.k_proj},
        {"v_proj", gguf_names.v_proj},       {"o_proj", gguf_names.o_proj},
        {"gate_proj", gguf_names.gate_proj}, {"up_proj", gguf_names.up_proj},
        {"down_proj", gguf_names.down_proj}};
    for (const auto& [ours, theirs] : modules)
        if (module == ours) return gguf_names.layer + number + "." + theirs;
    throw std::logic_error("an adapter of " + name);
}

}  // namespace

void refuse_to_overwrite(const std::string& file) {
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
} catch (const ShapeError& error) {
    require(false, "export: tensor {}: {}", name, error.what());
}

void GgufTensorList::add_vector(const std::string& name, const Vector& values) {
    add(name, DType::float32, {values.size()}, {values.data(), values.size()});
}

void GgufTensorList::add_rows(const std::string& name, const std::vector<std::size_t>& shape,
                              std::span<const Real> values) {
    const DType dtype = stored_dtype(dtype_, shape.back());
    if (dtype != dtype_) fallbacks_.push_back({name, dtype});
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

GgufMetadata size_metadata(const std::string& architecture, const Config& config) {
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
    metadata.emplace_back(architecture + ".attention.layer_norm_rms_epsilon",
                          double(config.rms_norm_eps));
    metadata.emplace_back(architecture + ".rope.freq_base", double(config.rope_theta));
    return metadata;
}

std::vector<Fallback> export_gguf(const Model& model, const Tokenizer& tokenizer,
                                  const std::string& file, DType dtype) {
    refuse_to_overwrite(file);
    check_exportable(model);
    GgufMetadata metadata = model_metadata(model.config, dtype);
    for (const auto& entry : tokenizer_metadata(tokenizer, model.config.vocab_size))
        metadata.push_back(entry);
    const GgufTensorList tensors = model_tensors(model, dtype);
    write_gguf(file, metadata, tensors.tensors());
    return tensors.fallbacks();
}

void export_gguf_adapter(const LoraAdapter& adapter, const Model& model,
                         const std::string& file) {
    refuse_to_overwrite(file);
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

}  // namespace llm
