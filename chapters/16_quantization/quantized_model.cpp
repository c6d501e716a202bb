#include "chapters/16_quantization/quantized_model.hpp"

#include "chapters/15_fast/kernels/simd.hpp"
#include "chapters/16_quantization/kernels/bfloat16_products.hpp"
#include "chapters/16_quantization/kernels/integer_products.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "common/tensors/dtype.hpp"

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
            dequantize_row(dtype, row, weights);
    }
    static const WeightKernels& with(Activations activations) {
        static const QuantizedInputKernels integers = {quantized_input_bytes, quantize_inputs,
                                                       matmul_quantized,
                                                       is_fast_for_many_tokens(dtype)};
        static const InterleavedRows rows = {num_interleaved_rows(), interleave_rows,
                                             copy_interleaved_row, dequantize_interleaved};
        constexpr bool has_blocks = dtype != DType::float16;
        static const WeightKernels float32 = {dtype,   quantize, dequantize,
                                              nullptr, nullptr,  has_blocks ? &rows : nullptr};
        static const WeightKernels int8 = {dtype,   quantize,  dequantize,
                                           nullptr, &integers, &rows};
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

}  // namespace llm
