// Chapter 15, file 3 of 10: weight matrices that are stored in fewer bytes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "chapters/15_fast/kernels/simd.hpp"
#include "common/tensors/dtype.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// Products whose inputs are quantized, too: to integers or to bfloat16 (chapter 16).
struct QuantizedInputKernels {
    std::size_t (*quantized_input_bytes)(std::size_t num_tokens, std::size_t in_features);
    void (*quantize_inputs)(ConstMatrixView inputs,           // (N, in)
                            std::span<std::byte> quantized);  // quantized_input_bytes(N, in)
    // outputs = inputs * rowsᵀ, on the calling thread.
    void (*matmul)(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                   std::span<const std::byte> inputs,  // quantized_input_bytes(N, in)
                   MatrixView outputs,                 // (N, number of rows)
                   Update update);
    bool for_many_tokens = false;  // whether a prefill uses them, too
    std::size_t min_tokens = 1;    // fewer are multiplied in float32
};

// A layout in which the bytes of some rows, a group, are interleaved (chapter 16).
struct InterleavedRows {
    std::size_t rows_per_group;
    // Writes whole groups; missing rows of the last one are zeros.
    void (*interleave)(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                       std::span<std::byte> groups);
    // The inverse, of one row of a group.
    void (*copy_row)(DType dtype, std::span<const std::byte> group, std::size_t row_of_group,
                     std::span<std::byte> row);
    // The first rows of a group, or all, as floats.
    void (*dequantize)(DType dtype, std::span<const std::byte> group,
                       MatrixView rows);  // (up to rows_per_group, in)
};

// The functions of a dtype. A row of weights is stored in bytes_per_row(dtype, in) bytes.
// Source: llama.cpp's table of type traits.
struct WeightKernels {
    DType dtype;
    void (*quantize)(std::span<const Real> weights, std::span<std::byte> row);
    void (*dequantize)(std::span<const std::byte> row, std::span<Real> weights);
    // The dot product of a row as it is stored. None: rows are dequantized first.
    Real (*dot)(std::span<const std::byte> row, std::span<const Real> inputs);
    // None: all products are computed in float32.
    const QuantizedInputKernels* quantized_inputs = nullptr;
    // The layout that they multiply, and that is dequantized fastest. None: rows follow one
    // another.
    const InterleavedRows* interleaved = nullptr;

    std::size_t rows_per_group() const { return interleaved ? interleaved->rows_per_group : 1; }
};

// The dtypes of this chapter: 4 and 2 bytes per weight. kernels_of throws
// ValueError for others.
inline constexpr std::array weight_dtypes = {DType::float32, DType::bfloat16};
const WeightKernels& kernels_of(DType dtype);

// A weight matrix, row by row in the bytes of a dtype. Copies share the bytes.
struct WeightMatrix {
    const WeightKernels* kernels = nullptr;
    std::size_t out_features = 0, in_features = 0;
    std::shared_ptr<const std::byte> bytes;  // out times bytes_per_row(dtype, in)
    std::size_t rows_per_group = 1;          // 1: not interleaved

    DType dtype() const { return kernels->dtype; }
    std::uint64_t nbytes() const;
    // Some rows: whole groups, if they are interleaved.
    std::span<const std::byte> rows(std::size_t first, std::size_t count) const;
    // A row converted to float.
    void dequantize_row(std::size_t row, std::span<Real> weights) const;  // (in)
};

// Rounds each weight to the nearest value that the dtype represents. Throws ValueError if a
// weight is not finite.
WeightMatrix quantize(const Matrix& weights,  // (out, in)
                      const WeightKernels& kernels);
WeightMatrix quantize(const Matrix& weights, DType dtype);  // with kernels_of(dtype)
Matrix dequantize(const WeightMatrix& weights);             // (out, in)

// The matrix in the layout of its kernels: interleaved into this memory of repacked_nbytes, or
// itself if its kernels have no such layout. The rows must not be interleaved yet.
std::size_t repacked_nbytes(const WeightMatrix& weights);
WeightMatrix repack(const WeightMatrix& weights, std::shared_ptr<std::byte> memory);
WeightMatrix repack(const WeightMatrix& weights);  // in memory of its own

// Memory of matrix products, which every call reuses.
struct MatmulWorkspace {
    AlignedVector<Real> dequantized;     // some rows of weights
    AlignedVector<std::byte> quantized;  // inputs of QuantizedInputKernels

    std::uint64_t nbytes() const;
};

// The matrix product of a decode step, of one token or a few: outputs = inputs * weightsᵀ, on
// all threads. Each thread computes some of the outputs: it reads only the corresponding rows
// of the weights, each of them once for all tokens.
void matmul_by_rows(ConstMatrixView inputs,       // (N, in)
                    const WeightMatrix& weights,  // (out, in)
                    MatrixView outputs,           // (N, out)
                    MatmulWorkspace& workspace,
                    Update update = Update::overwrite);  // accumulate: outputs += ...

// The matrix product of a prefill, on the calling thread. Weights of other dtypes than float32
// are dequantized, 64 rows at a time, unless there are kernels with quantized inputs for many
// tokens.
void matmul_transposed(ConstMatrixView inputs,       // (N, in)
                       const WeightMatrix& weights,  // (out, in)
                       MatrixView outputs,           // (N, out)
                       MatmulWorkspace& workspace,
                       Update update = Update::overwrite);  // accumulate: outputs += ...

}  // namespace llm
