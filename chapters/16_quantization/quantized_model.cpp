#include "chapters/16_quantization/quantized_model.hpp"

#include "chapters/09_full_model/gguf_tensors.hpp"
#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "chapters/16_quantization/kernels/bfloat16_products.hpp"
#include "chapters/16_quantization/kernels/integer_products.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "common/tensors/block_types.hpp"

namespace llm {
namespace {

// The functions of one dtype, in the form of a table of kernels.
template <DType dtype>
struct Kernels {
    static void quantize(std::span<const Real> weights, std::span<std::byte> row) {
        quantize_row(dtype, weights, row);
    }
    static void dequantize(std::span<const std::byte> row, std::span<Real> weights) {
        if constexpr (dtype == DType::float16)
            to_float({reinterpret_cast<const Half*>(row.data()), weights.size()}, weights);
        else
            dequantize_by_unpacking(dtype, row, weights);
    }
    static const WeightKernels& with(Activations activations) {
        static const QuantizedInputKernels integers = {quantized_input_bytes, quantize_inputs,
                                                       matmul_quantized, has_vnni()};
        static const WeightKernels float32 = {dtype, quantize, dequantize, nullptr};
        static const WeightKernels int8 = {dtype, quantize, dequantize, nullptr, &integers};
        return activations == Activations::quantized ? int8 : float32;
    }
};

// Chapter 15's kernels, and if the processor multiplies bfloat16 itself, products with rounded
// inputs. Those take nearly as long for one token as for 16. With up to six tokens, a register
// tile of chapter 15 is faster, so their inputs stay float32.
const WeightKernels& bfloat16_kernels(Activations activations) {
    static const QuantizedInputKernels rounded = {
        bfloat16_input_bytes, round_to_bfloat16,
        [](DType, std::span<const std::byte> rows, std::size_t in_features,
           std::span<const std::byte> inputs, MatrixView outputs,
           Update update) { matmul_bfloat16(rows, in_features, inputs, outputs, update); },
        true, 7};
    static const WeightKernels& float32 = kernels_of(DType::bfloat16);
    static const WeightKernels bfloat16 = {DType::bfloat16, float32.quantize,
                                           float32.dequantize, float32.dot, &rounded};
    return activations == Activations::quantized && has_avx512_bf16() ? bfloat16 : float32;
}

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
        const DType dtype = file_.tensor(name + ".weight").dtype;
        return {&quantization_kernels(dtype, activations_), out, in,
                tensors_.read_bytes(name + ".weight", out, in)};
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

const WeightKernels& quantization_kernels(DType dtype, Activations activations) {
    switch (dtype) {
        case DType::float16:
            return Kernels<DType::float16>::with(Activations::float32);
        case DType::bfloat16:
            return bfloat16_kernels(activations);
        case DType::q8_0:
            return Kernels<DType::q8_0>::with(activations);
        case DType::q4_0:
            return Kernels<DType::q4_0>::with(activations);
        case DType::q5_0:
            return Kernels<DType::q5_0>::with(activations);
        case DType::q4_k:
            return Kernels<DType::q4_k>::with(activations);
        case DType::q6_k:
            return Kernels<DType::q6_k>::with(activations);
        default:
            return kernels_of(dtype);
    }
}

FastModel quantize_model(const Model& model, DType dtype, Activations activations) {
    return make_fast_model(model, [&](std::size_t in_features) -> const WeightKernels& {
        return quantization_kernels(stored_dtype(dtype, in_features), activations);
    });
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
    tensors.reject_unread();
    return model;
}

}  // namespace llm
