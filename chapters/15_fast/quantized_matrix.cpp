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

    // Use more chunks than threads, so that a slower thread computes fewer of them (dynamic
    // scheduling).
    const std::size_t num_chunks = 4 * num_threads();
    const std::size_t chunk_size = ceil_div(outputs.size(), num_chunks);
    parallel_for(num_chunks, [&](std::size_t chunk) {
        const std::size_t end = std::min((chunk + 1) * chunk_size, outputs.size());
        for (std::size_t row = chunk * chunk_size; row < end; ++row) {
            const Real product = weights.dot_row(row, inputs);
            outputs[row] = update == Update::accumulate ? outputs[row] + product : product;
        }
    });
}

void matmul_transposed(ConstMatrixView inputs, const QuantizedMatrix& weights,
                       MatrixView outputs, std::vector<Real>& dequantized, Update update) {
    const std::size_t in = weights.in_features, out = weights.out_features;
    require(inputs.num_columns == in && outputs.num_columns == out &&
                outputs.num_rows == inputs.num_rows,
            "matmul: weights of ({}, {}) do not map ({}, {}) to ({}, {})", out, in,
            inputs.num_rows, inputs.num_columns, outputs.num_rows, outputs.num_columns);
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
