// Chapter 15: quantized weights.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "chapters/15_fast/simd.hpp"
#include "common/tensors/dtype.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// The dtypes that weights can be stored in: 4, 2 or 1 bytes per weight; int8 has, in addition,
// a float scale for each group of 64. Products are accumulated in float32 for all of them.
inline constexpr std::array weight_dtypes = {DType::float32, DType::bfloat16, DType::int8};

// A weight matrix in one of these dtypes, in row-major order.
struct QuantizedMatrix {
    DType dtype = DType::float32;
    std::size_t out_features = 0, in_features = 0;
    // (out * in) values in the vector that corresponds to the dtype; the others are empty.
    AlignedVector<Real> float32_values;
    AlignedVector<Bfloat16> bfloat16_values;
    AlignedVector<std::int8_t> int8_values;
    std::vector<Real> scales;  // of int8: ceil(in / 64) for each row

    // The dot product of a row with the inputs, and the row converted to float.
    Real dot_row(std::size_t row, std::span<const Real> inputs) const;    // (in)
    void dequantize_row(std::size_t row, std::span<Real> weights) const;  // (in)
    Int8Row int8_row(std::size_t row) const;
    // The values of some rows in memory, without scales.
    std::span<const std::byte> row_bytes(std::size_t first, std::size_t count) const;

    std::uint64_t nbytes() const;  // of values and scales
};

// Rounds each weight to the nearest value that the dtype represents. Throws ShapeError if a
// weight is not finite, and std::invalid_argument if the dtype is not one of weight_dtypes.
QuantizedMatrix quantize(const Matrix& weights,  // (out, in)
                         DType dtype);
Matrix dequantize(const QuantizedMatrix& weights);  // (out, in)

// The matrix-vector product of a decode step: outputs = weights * inputs, on all threads. Each
// thread computes some of the outputs, so it reads only the corresponding rows of the weights.
void matvec(const QuantizedMatrix& weights,      // (out, in)
            std::span<const Real> inputs,        // (in)
            std::span<Real> outputs,             // (out)
            Update update = Update::overwrite);  // accumulate: outputs += weights * inputs

// The same for a few tokens. Each thread reads and dequantizes only its rows of the weights,
// each of them once for all tokens.
void matmul_by_rows(ConstMatrixView inputs,              // (N, in)
                    const QuantizedMatrix& weights,      // (out, in)
                    MatrixView outputs,                  // (N, out)
                    AlignedVector<Real>& dequantized,    // a buffer that grows as needed
                    Update update = Update::overwrite);  // accumulate: outputs += ...

// The matrix product of a prefill: outputs = inputs * weightsᵀ, on the calling thread. bfloat16
// and int8 weights are dequantized, 64 rows at a time, into a buffer that grows as needed.
void matmul_transposed(ConstMatrixView inputs,              // (N, in)
                       const QuantizedMatrix& weights,      // (out, in)
                       MatrixView outputs,                  // (N, out)
                       AlignedVector<Real>& dequantized,    // the buffer
                       Update update = Update::overwrite);  // accumulate: outputs += ...

}  // namespace llm
