#include "chapters/15_fast/quantized_matrix.hpp"

#include <cmath>
#include <stdexcept>

#include "common/system/parallel.hpp"

namespace llm {
namespace {

std::size_t ceil_div(std::size_t number, std::size_t divisor) {
    return (number + divisor - 1) / divisor;
}

// Appends a row of integers from -127 to 127, and a scale for each group of 64.
void append_int8(std::span<const Real> row, QuantizedMatrix& quantized) {
    for (std::size_t begin = 0; begin < row.size(); begin += group_size) {
        const auto group = row.subspan(begin, std::min(group_size, row.size() - begin));

        // Map the largest magnitude to ±127. A group of zeros has a scale of 0.
        Real absmax = 0;
        for (const Real weight : group) absmax = std::max(absmax, std::abs(weight));
        const Real scale = absmax / 127;
        quantized.scales.push_back(scale);
        for (const Real weight : group) {
            const Real value = scale == 0 ? 0 : std::round(weight / scale);
            quantized.int8_values.push_back(
                static_cast<std::int8_t>(std::clamp(value, Real(-127), Real(127))));
        }
    }
}

void check_shapes(ConstMatrixView inputs, const QuantizedMatrix& weights, MatrixView outputs) {
    require(inputs.num_columns == weights.in_features &&
                outputs.num_columns == weights.out_features &&
                outputs.num_rows == inputs.num_rows,
            "matmul: weights of ({}, {}) do not map ({}, {}) to ({}, {})", weights.out_features,
            weights.in_features, inputs.num_rows, inputs.num_columns, outputs.num_rows,
            outputs.num_columns);
}

// Calls function(begin, end, thread) for chunks of the rows of a weight matrix, on all threads.
// There are more chunks than threads, so that a slower thread computes fewer of them (dynamic
// scheduling).
template <typename Function>
void for_row_chunks(std::size_t num_rows, const Function& function) {
    const std::size_t num_chunks = 4 * num_threads();
    const std::size_t chunk_size = ceil_div(num_rows, num_chunks);
    parallel_for(num_chunks, [&](std::size_t chunk, std::size_t thread) {
        const std::size_t begin = std::min(chunk * chunk_size, num_rows);
        function(begin, std::min(begin + chunk_size, num_rows), thread);
    });
}

// Some rows as floats: in place, or dequantized into the buffer.
ConstMatrixView rows_as_floats(const QuantizedMatrix& weights, std::size_t begin,
                               std::size_t count, std::span<Real> buffer) {
    const std::size_t in = weights.in_features;
    if (weights.dtype == DType::float32)
        return {&weights.float32_values[begin * in], count, in, in};
    const MatrixView rows{buffer.data(), count, in, in};
    for (std::size_t i = 0; i < count; ++i) weights.dequantize_row(begin + i, rows[i]);
    return rows;
}

// Four rows of inputs; after the last one, it is repeated.
std::array<const Real*, 4> four_inputs(ConstMatrixView inputs, std::size_t first) {
    std::array<const Real*, 4> four;
    for (std::size_t k = 0; k < 4; ++k)
        four[k] = inputs[std::min(first + k, inputs.num_rows - 1)].data();
    return four;
}

// outputs = inputs * rowsᵀ, tile by tile. Four inputs stay in the L1 cache while they are
// multiplied by all rows. With each tile, a part of the next weights is prefetched: memory is
// read while the processor computes.
void multiply_in_tiles(ConstMatrixView inputs, ConstMatrixView rows, MatrixView outputs,
                       Update update, std::span<const std::byte> next_weights) {
    const std::size_t num_tiles = ceil_div(inputs.num_rows, 4) * ceil_div(rows.num_rows, 2);
    const std::size_t part_size = ceil_div(next_weights.size(), num_tiles);
    for (std::size_t token = 0; token < inputs.num_rows; token += 4) {
        const std::array<const Real*, 4> four = four_inputs(inputs, token);
        const std::size_t num_inputs = std::min<std::size_t>(4, inputs.num_rows - token);
        for (std::size_t row = 0; row < rows.num_rows; row += 2) {
            const auto part = next_weights.first(std::min(part_size, next_weights.size()));
            prefetch(part);
            next_weights = next_weights.subspan(part.size());

            // An odd last row is computed twice.
            const std::size_t num_rows = std::min<std::size_t>(2, rows.num_rows - row);
            const DotTile sums = dot_tile({rows[row].data(), rows[row + num_rows - 1].data()},
                                          four, inputs.num_columns);
            for (std::size_t k = 0; k < num_inputs; ++k)
                for (std::size_t r = 0; r < num_rows; ++r) {
                    Real& output = outputs[token + k][row + r];
                    output = update == Update::accumulate ? output + sums[r][k] : sums[r][k];
                }
        }
    }
}

void check_dtype(DType dtype) {
    if (std::ranges::find(weight_dtypes, dtype) == weight_dtypes.end())
        throw std::invalid_argument("quantize: no weights of " + std::string(to_text(dtype)));
}

}  // namespace

Int8Row QuantizedMatrix::int8_row(std::size_t row) const {
    const std::size_t num_groups = ceil_div(in_features, group_size);
    return {{int8_values.data() + row * in_features, in_features},
            {scales.data() + row * num_groups, num_groups}};
}

Real QuantizedMatrix::dot_row(std::size_t row, std::span<const Real> inputs) const {
    const std::size_t first = row * in_features;
    if (dtype == DType::float32)
        return dot(std::span(float32_values.data() + first, in_features), inputs);
    if (dtype == DType::bfloat16)
        return dot(std::span(bfloat16_values.data() + first, in_features), inputs);
    return dot(int8_row(row), inputs);
}

std::span<const std::byte> QuantizedMatrix::row_bytes(std::size_t first,
                                                      std::size_t count) const {
    const std::size_t begin = first * in_features, size = count * in_features;
    if (dtype == DType::float32)
        return std::as_bytes(std::span(float32_values).subspan(begin, size));
    if (dtype == DType::bfloat16)
        return std::as_bytes(std::span(bfloat16_values).subspan(begin, size));
    return std::as_bytes(std::span(int8_values).subspan(begin, size));
}

void QuantizedMatrix::dequantize_row(std::size_t row, std::span<Real> weights) const {
    const std::size_t first = row * in_features;
    if (dtype == DType::float32)
        std::copy_n(float32_values.data() + first, in_features, weights.data());
    else if (dtype == DType::bfloat16)
        dequantize(std::span(bfloat16_values.data() + first, in_features), weights);
    else
        dequantize(int8_row(row), weights);
}

std::uint64_t QuantizedMatrix::nbytes() const {
    return std::uint64_t{float32_values.size()} * sizeof(Real) +
           std::uint64_t{bfloat16_values.size()} * sizeof(Bfloat16) + int8_values.size() +
           std::uint64_t{scales.size()} * sizeof(Real);
}

QuantizedMatrix quantize(const Matrix& weights, DType dtype) {
    check_dtype(dtype);
    for (const Real weight : weights)
        require(
            std::isfinite(dtype == DType::bfloat16 ? to_float(to_bfloat16(weight)) : weight),
            "quantize: a matrix of {} holds inf or NaN", weights.shape());

    QuantizedMatrix quantized{dtype, weights.shape(0), weights.shape(1), {}, {}, {}, {}};
    if (dtype == DType::float32)
        quantized.float32_values.assign(weights.begin(), weights.end());
    if (dtype == DType::bfloat16) {
        quantized.bfloat16_values.reserve(weights.size());
        for (const Real weight : weights)
            quantized.bfloat16_values.push_back(to_bfloat16(weight));
    }
    if (dtype == DType::int8)
        for (std::size_t row = 0; row < quantized.out_features; ++row)
            append_int8(view_of(weights)[row], quantized);
    return quantized;
}

Matrix dequantize(const QuantizedMatrix& weights) {
    Matrix result = xt::zeros<Real>({weights.out_features, weights.in_features});
    for (std::size_t row = 0; row < weights.out_features; ++row)
        weights.dequantize_row(row, view_of(result)[row]);
    return result;
}

void matvec(const QuantizedMatrix& weights, std::span<const Real> inputs,
            std::span<Real> outputs, Update update) {
    require(inputs.size() == weights.in_features && outputs.size() == weights.out_features,
            "matvec: weights of ({}, {}) do not map {} inputs to {} outputs",
            weights.out_features, weights.in_features, inputs.size(), outputs.size());

    for_row_chunks(outputs.size(), [&](std::size_t begin, std::size_t end, std::size_t) {
        for (std::size_t row = begin; row < end; ++row) {
            const Real product = weights.dot_row(row, inputs);
            outputs[row] = update == Update::accumulate ? outputs[row] + product : product;
        }
    });
}

void matmul_by_rows(ConstMatrixView inputs, const QuantizedMatrix& weights, MatrixView outputs,
                    AlignedVector<Real>& dequantized, Update update) {
    check_shapes(inputs, weights, outputs);
    const std::size_t in = weights.in_features, out = weights.out_features;
    if (inputs.num_rows == 1) {
        matvec(weights, inputs[0], outputs[0], update);
        return;
    }
    constexpr std::size_t rows_at_once = 16;
    dequantized.resize(num_threads() * rows_at_once * in);

    for_row_chunks(out, [&](std::size_t begin, std::size_t end, std::size_t thread) {
        const std::span<Real> buffer =
            std::span(dequantized).subspan(thread * rows_at_once * in, rows_at_once * in);
        for (std::size_t row = begin; row < end; row += rows_at_once) {
            const std::size_t count = std::min(rows_at_once, end - row);
            const ConstMatrixView rows = rows_as_floats(weights, row, count, buffer);
            const std::size_t next = row + count;
            multiply_in_tiles(inputs, rows, outputs.columns(row, count), update,
                              weights.row_bytes(next, std::min(rows_at_once, end - next)));
        }
    });
}

void matmul_transposed(ConstMatrixView inputs, const QuantizedMatrix& weights,
                       MatrixView outputs, AlignedVector<Real>& dequantized, Update update) {
    check_shapes(inputs, weights, outputs);
    const std::size_t in = weights.in_features, out = weights.out_features;
    if (weights.dtype == DType::float32) {
        matmul_transposed(inputs, {weights.float32_values.data(), out, in, in}, outputs,
                          update);
        return;
    }

    // Dequantize 64 rows and multiply by them while they are in the processor's cache.
    constexpr std::size_t rows_at_once = 64;
    dequantized.resize(rows_at_once * in);
    for (std::size_t begin = 0; begin < out; begin += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, out - begin);
        const MatrixView rows{dequantized.data(), count, in, in};
        for (std::size_t i = 0; i < count; ++i) weights.dequantize_row(begin + i, rows[i]);
        matmul_transposed(inputs, rows, outputs.columns(begin, count), update);
    }
}

}  // namespace llm
