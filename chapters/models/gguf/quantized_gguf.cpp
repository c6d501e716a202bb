#include "chapters/models/gguf/quantized_gguf.hpp"

#include "chapters/09_full_model/model_tensors.hpp"

namespace llm::models {
namespace {

// Reorders the rows of q_proj or k_proj. They stay quantized: no block spans two rows.
WeightMatrix interleaved_to_split_half(WeightMatrix matrix, std::size_t head_dim) {
    const std::size_t size = matrix.rows(0, matrix.out_features).size();
    const std::shared_ptr<std::byte> bytes = allocate_bytes(size);
    std::byte* end = bytes.get();
    for (std::size_t r = 0; r < matrix.out_features; ++r) {
        const std::span<const std::byte> row = matrix.rows(interleaved_index(r, head_dim), 1);
        end = std::copy(row.begin(), row.end(), end);
    }
    matrix.bytes = bytes;
    return matrix;
}

// Reads the parts of a fast model by the tensor names of a GGUF file.
class QuantizedReader {
 public:
    QuantizedReader(const Gguf& file, GgufTensors& tensors, const Config& config,
                    Activations activations)
        : file_(file), tensors_(tensors), config_(config), activations_(activations) {}

    WeightMatrix matrix(const std::string& name, std::size_t out, std::size_t in) {
        return read_weight_matrix(file_, tensors_, name, out, in, activations_);
    }

    RMSNorm norm(const std::string& name) {
        return {tensors_.read(name + ".weight", {config_.hidden_size}), config_.rms_norm_eps};
    }

    FastLayer layer(const std::string& layer) {
        const std::size_t C = config_.hidden_size, F = config_.intermediate_size;
        FastLayer result{
            norm(layer + gguf_names.layers.attention_norm),
            norm(layer + gguf_names.layers.ffn_norm),
            qkv_proj(layer),
            o_proj(layer),
            {memory_.fuse({matrix(layer + gguf_names.layers.mlp.gate_proj, F, C),
                           matrix(layer + gguf_names.layers.mlp.up_proj, F, C)}),
             {}},
            {memory_.fuse({matrix(layer + gguf_names.layers.mlp.down_proj, C, F)}), {}}};
        if (config_.qk_norm == QKNormType::with_weights)
            result.qk_norm = QKNormWithWeights{
                tensors_.read(layer + gguf_names.layers.q_norm + ".weight", {config_.head_dim}),
                tensors_.read(layer + gguf_names.layers.k_norm + ".weight", {config_.head_dim}),
                config_.rms_norm_eps};
        return result;
    }

 private:
    const Gguf& file_;
    GgufTensors& tensors_;
    const Config& config_;
    Activations activations_;
    WeightMemory memory_;

    // A projection of the attention and its bias, if it has one. Queries and keys are reordered
    // if their rows are interleaved pairs.
    FastLinear projection(const std::string& name, std::size_t out, std::size_t in,
                          bool with_bias, bool interleaved) {
        FastLinear result{{matrix(name, out, in)}, {}};
        if (with_bias) {
            const Vector bias = tensors_.read(name + ".bias", {out});
            for (std::size_t row = 0; row < out; ++row)
                result.bias.push_back(
                    bias(interleaved ? interleaved_index(row, config_.head_dim) : row));
        }
        if (interleaved)
            result.weights[0] =
                interleaved_to_split_half(std::move(result.weights[0]), config_.head_dim);
        return result;
    }

    FastLinear qkv_proj(const std::string& layer) {
        const std::size_t C = config_.hidden_size, D = config_.head_dim;
        const std::size_t query_width = config_.num_attention_heads * D;
        const std::size_t kv_width = config_.num_key_value_heads * D;
        const bool bias = config_.attention_bias != AttentionBias::none;
        const bool interleaved = rope_layout(file_) == RopeLayout::interleaved;
        std::vector<WeightMatrix> weights;
        std::vector<Real> biases;
        for (FastLinear& part : std::array{
                 projection(layer + gguf_names.layers.q_proj, query_width, C, bias,
                            interleaved),
                 projection(layer + gguf_names.layers.k_proj, kv_width, C, bias, interleaved),
                 projection(layer + gguf_names.layers.v_proj, kv_width, C, bias, false)}) {
            weights.push_back(std::move(part.weights[0]));
            biases.insert(biases.end(), part.bias.begin(), part.bias.end());
        }
        return {memory_.fuse(weights), biases};
    }

    FastLinear o_proj(const std::string& layer) {
        const FastLinear result =
            projection(layer + gguf_names.layers.o_proj, config_.hidden_size,
                       config_.num_attention_heads * config_.head_dim,
                       config_.attention_bias == AttentionBias::qkvo, false);
        return {memory_.fuse(result.weights), result.bias};
    }
};

}  // namespace

WeightMatrix read_weight_matrix(const Gguf& file, GgufTensors& tensors, const std::string& name,
                                std::size_t out, std::size_t in, Activations activations) {
    const DType dtype = file.tensor(name + ".weight").dtype;
    if (dtype == DType::mxfp4)
        file.reject("tensor " + name +
                    ".weight is of type mxfp4, which has no fast path; --dtype bfloat16 "
                    "converts it exactly");
    return {&quantization_kernels(dtype, activations), out, in,
            tensors.read_bytes(name + ".weight", out, in), 1};
}

FastModel load_quantized_model(const std::string& gguf_path, Activations activations) {
    const Gguf file(gguf_path);
    const Config config = read_config(file);
    file.reject_other_types();
    GgufTensors tensors(file);
    QuantizedReader reader(file, tensors, config, activations);
    FastModel model{
        config,
        reader.matrix(gguf_names.embed_tokens, config.vocab_size, config.hidden_size),
        {},
        reader.norm(gguf_names.norm),
        {}};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        model.layers.push_back(reader.layer(gguf_names.layer + to_text(n) + "."));
    if (!config.tie_word_embeddings)
        model.lm_head =
            reader.matrix(gguf_names.lm_head, config.vocab_size, config.hidden_size);
    model.head() = repack(model.head());
    tensors.reject_unread();
    return model;
}

}  // namespace llm::models
