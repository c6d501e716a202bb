#include "chapters/15_fast/weight_matrix.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "chapters/15_fast/kernels/dot_tile.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/system/parallel.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {
namespace {

// The bytes of a row as values of a type.
template <class T>
std::span<const T> values_of(std::span<const std::byte> row) {
    return {reinterpret_cast<const T*>(row.data()), row.size() / sizeof(T)};
}

void quantize_float32(std::span<const Real> weights, std::span<std::byte> row) {
    std::ranges::copy(std::as_bytes(weights), row.begin());
}
void dequantize_float32(std::span<const std::byte> row, std::span<Real> weights) {
    std::ranges::copy(values_of<Real>(row), weights.begin());
}
Real dot_float32(std::span<const std::byte> row, std::span<const Real> inputs) {
    return dot(values_of<Real>(row), inputs);
}

void quantize_bfloat16(std::span<const Real> weights, std::span<std::byte> row) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Bfloat16 value = to_bfloat16(weights[i]);
        std::memcpy(&row[i * sizeof value], &value, sizeof value);
    }
}
void dequantize_bfloat16(std::span<const std::byte> row, std::span<Real> weights) {
    dequantize(values_of<Bfloat16>(row), weights);
}
Real dot_bfloat16(std::span<const std::byte> row, std::span<const Real> inputs) {
    return dot(values_of<Bfloat16>(row), inputs);
}

const WeightKernels float32_kernels = {DType::float32, quantize_float32, dequantize_float32,
                                       dot_float32};
const WeightKernels bfloat16_kernels = {DType::bfloat16, quantize_bfloat16, dequantize_bfloat16,
                                        dot_bfloat16};

void check_shapes(ConstMatrixView inputs, const WeightMatrix& weights, MatrixView outputs) {
    require(inputs.num_columns == weights.in_features &&
                outputs.num_columns == weights.out_features &&
                outputs.num_rows == inputs.num_rows,
            "matmul: weights of ({}, {}) do not map ({}, {}) to ({}, {})", weights.out_features,
            weights.in_features, inputs.num_rows, inputs.num_columns, outputs.num_rows,
            outputs.num_columns);
    require(weights.rows_per_group == weights.kernels->rows_per_group(),
            "matmul: weights of {} are not in the layout of their kernels (repack)",
            to_text(weights.dtype()));
}

// Calls function(begin, end, thread) for chunks of the rows of a weight matrix, on all threads.
// A large matrix has several chunks per thread, so that a slower thread computes fewer of them
// (dynamic scheduling); with smaller chunks than these, decode steps were measured to be
// slower. A small matrix has one per thread, or fewer if computing a chunk would take less time
// than starting a thread, a microsecond. All chunks except the last one consist of whole tiles.
template <typename Function>
void for_row_chunks(std::size_t num_rows, std::size_t in_features, std::size_t rows_of_tile,
                    const Function& function) {
    constexpr std::size_t weights_worth_a_thread = 16384, weights_per_chunk = 49152;
    const std::size_t num_weights = num_rows * in_features;
    const std::size_t chunks_per_thread =
        std::clamp<std::size_t>(num_weights / (weights_per_chunk * num_threads()), 1, 8);
    const std::size_t num_chunks = std::clamp<std::size_t>(
        num_weights / weights_worth_a_thread, 1, chunks_per_thread * num_threads());
    const std::size_t chunk_size =
        ceil_div(ceil_div(num_rows, num_chunks), rows_of_tile) * rows_of_tile;
    parallel_for(num_chunks, [&](std::size_t chunk, std::size_t thread) {
        const std::size_t begin = std::min(chunk * chunk_size, num_rows);
        function(begin, std::min(begin + chunk_size, num_rows), thread);
    });
}

// Some rows as they are stored.
template <class T>
BasicMatrixView<const T> rows_of(const WeightMatrix& weights, std::size_t begin,
                                 std::size_t count) {
    const std::size_t in = weights.in_features;
    return {values_of<T>(weights.rows(begin, count)).data(), count, in, in};
}

// Some rows as floats: in place, or dequantized into the buffer.
ConstMatrixView rows_as_floats(const WeightMatrix& weights, std::size_t begin,
                               std::size_t count, std::span<Real> buffer) {
    if (weights.dtype() == DType::float32) return rows_of<Real>(weights, begin, count);
    const std::size_t in = weights.in_features;
    const MatrixView rows{buffer.data(), count, in, in};
    const std::size_t group = weights.rows_per_group;
    for (std::size_t i = 0; i < count; i += group)
        if (group == 1)
            weights.dequantize_row(begin + i, rows[i]);
        else
            weights.kernels->interleaved->dequantize(weights.dtype(),
                                                     weights.rows(begin + i, group),
                                                     rows.rows(i, std::min(group, count - i)));
    return rows;
}

// The decode step of a single token: one dot product per row. Short rows, whose matrices are in
// the processor's cache, are multiplied four at a time. Long rows are read from memory, and a
// processor reads one row faster than four at once.
void multiply_one_token(std::span<const Real> inputs, const WeightMatrix& weights,
                        std::span<Real> outputs, Update update) {
    const bool four_rows_at_a_time = weights.dtype() == DType::float32 && inputs.size() <= 256;
    for_row_chunks(
        outputs.size(), inputs.size(), 1, [&](std::size_t begin, std::size_t end, std::size_t) {
            if (four_rows_at_a_time && begin < end) {
                dot_rows(rows_as_floats(weights, begin, end - begin, {}), inputs,
                         outputs.subspan(begin, end - begin), update);
                return;
            }
            const std::span<const std::byte> rows = weights.rows(begin, end - begin);
            const std::size_t row_size = bytes_per_row(weights.dtype(), inputs.size());
            for (std::size_t row = begin; row < end; ++row) {
                const Real product = weights.kernels->dot(
                    rows.subspan((row - begin) * row_size, row_size), inputs);
                outputs[row] = update == Update::accumulate ? outputs[row] + product : product;
            }
        });
}

// Quantizes the inputs of a product, once for all rows of the weights.
std::span<const std::byte> quantize_inputs(ConstMatrixView inputs,
                                           const QuantizedInputKernels& kernels,
                                           MatmulWorkspace& workspace) {
    workspace.quantized.resize(
        kernels.quantized_input_bytes(inputs.num_rows, inputs.num_columns));
    kernels.quantize_inputs(inputs, workspace.quantized);
    return workspace.quantized;
}

void multiply_quantized_inputs(ConstMatrixView inputs, const WeightMatrix& weights,
                               MatrixView outputs, MatmulWorkspace& workspace, Update update) {
    const QuantizedInputKernels& kernels = *weights.kernels->quantized_inputs;
    const std::span<const std::byte> quantized = quantize_inputs(inputs, kernels, workspace);
    constexpr std::size_t rows_of_tile = 16;
    for_row_chunks(weights.out_features, weights.in_features, rows_of_tile,
                   [&](std::size_t begin, std::size_t end, std::size_t) {
                       kernels.matmul(weights.dtype(), weights.rows(begin, end - begin),
                                      weights.in_features, quantized,
                                      outputs.columns(begin, end - begin), update);
                   });
}

}  // namespace

const WeightKernels& kernels_of(DType dtype) {
    if (dtype == DType::float32) return float32_kernels;
    if (dtype == DType::bfloat16) return bfloat16_kernels;
    throw ValueError("quantize: chapter 15 has no weights of " + std::string(to_text(dtype)));
}

std::uint64_t WeightMatrix::nbytes() const {
    return std::uint64_t{out_features} * bytes_per_row(dtype(), in_features);
}
std::span<const std::byte> WeightMatrix::rows(std::size_t first, std::size_t count) const {
    const std::size_t row_size = bytes_per_row(dtype(), in_features);
    const std::size_t num_groups = ceil_div(count, rows_per_group);
    return {bytes.get() + first * row_size, num_groups * rows_per_group * row_size};
}
void WeightMatrix::dequantize_row(std::size_t row, std::span<Real> weights) const {
    if (rows_per_group == 1) return kernels->dequantize(rows(row, 1), weights);
    const std::size_t lane = row % rows_per_group;
    std::vector<std::byte> copy(bytes_per_row(dtype(), in_features));
    kernels->interleaved->copy_row(dtype(), rows(row - lane, rows_per_group), lane, copy);
    kernels->dequantize(copy, weights);
}

std::size_t repacked_nbytes(const WeightMatrix& weights) {
    const std::size_t rows_per_group = weights.kernels->rows_per_group();
    return ceil_div(weights.out_features, rows_per_group) * rows_per_group *
           bytes_per_row(weights.dtype(), weights.in_features);
}

WeightMatrix repack(const WeightMatrix& weights, std::shared_ptr<std::byte> memory) {
    const InterleavedRows* layout = weights.kernels->interleaved;
    if (!layout) return weights;
    layout->interleave(weights.dtype(), weights.rows(0, weights.out_features),
                       weights.in_features, {memory.get(), repacked_nbytes(weights)});
    WeightMatrix result = weights;
    result.rows_per_group = layout->rows_per_group;
    result.bytes = std::move(memory);
    return result;
}

WeightMatrix repack(const WeightMatrix& weights) {
    if (!weights.kernels->interleaved) return weights;
    return repack(weights, allocate_bytes(repacked_nbytes(weights)));
}

std::uint64_t MatmulWorkspace::nbytes() const {
    return std::uint64_t{dequantized.size()} * sizeof(Real) + quantized.size();
}

WeightMatrix quantize(const Matrix& weights, const WeightKernels& kernels) {
    const auto [out_features, in_features] = dims(weights);
    const std::size_t row_size = bytes_per_row(kernels.dtype, in_features);
    const std::shared_ptr<std::byte> bytes = allocate_bytes(out_features * row_size);
    std::vector<Real> restored(in_features);
    for (std::size_t row = 0; row < out_features; ++row) {
        const std::span<std::byte> stored(bytes.get() + row * row_size, row_size);
        kernels.quantize(view_of(weights)[row], stored);
        kernels.dequantize(stored, restored);
        for (const Real weight : restored)
            require(std::isfinite(weight), "quantize: a matrix of {} holds inf or NaN",
                    weights.shape());
    }
    return {&kernels, out_features, in_features, bytes, 1};
}

WeightMatrix quantize(const Matrix& weights, DType dtype) {
    return quantize(weights, kernels_of(dtype));
}

Matrix dequantize(const WeightMatrix& weights) {
    Matrix result = xt::zeros<Real>({weights.out_features, weights.in_features});
    for (std::size_t row = 0; row < weights.out_features; ++row)
        weights.dequantize_row(row, view_of(result)[row]);
    return result;
}

void matmul_by_rows(ConstMatrixView inputs, const WeightMatrix& weights, MatrixView outputs,
                    MatmulWorkspace& workspace, Update update) {
    check_shapes(inputs, weights, outputs);
    const QuantizedInputKernels* kernels = weights.kernels->quantized_inputs;
    if (kernels && inputs.num_rows >= kernels->min_tokens)
        return multiply_quantized_inputs(inputs, weights, outputs, workspace, update);
    if (inputs.num_rows == 1 && weights.kernels->dot)
        return multiply_one_token(inputs[0], weights, outputs[0], update);

    const std::size_t rows_at_once = std::max<std::size_t>(8, weights.rows_per_group);
    const std::size_t in = weights.in_features, buffer_size = rows_at_once * in;
    workspace.dequantized.resize(weights.kernels->dot ? 0 : num_threads() * buffer_size);
    for_row_chunks(
        weights.out_features, in, rows_at_once,
        [&](std::size_t begin, std::size_t end, std::size_t thread) {
            const std::size_t num_rows = end - begin;
            const MatrixView part = outputs.columns(begin, num_rows);
            if (weights.dtype() == DType::float32)
                return multiply_in_tiles(inputs, rows_of<Real>(weights, begin, num_rows), part,
                                         update);
            if (weights.dtype() == DType::bfloat16)
                return multiply_in_tiles(inputs, rows_of<Bfloat16>(weights, begin, num_rows),
                                         part, update);

            // Dequantize some rows of another type, and multiply while they are in the cache.
            const std::span<Real> buffer =
                std::span(workspace.dequantized).subspan(thread * buffer_size, buffer_size);
            for (std::size_t row = begin; row < end; row += rows_at_once) {
                const std::size_t count = std::min(rows_at_once, end - row);
                multiply_in_tiles(inputs, rows_as_floats(weights, row, count, buffer),
                                  outputs.columns(row, count), update);
            }
        });
}

void matmul_transposed(ConstMatrixView inputs, const WeightMatrix& weights, MatrixView outputs,
                       MatmulWorkspace& workspace, Update update) {
    check_shapes(inputs, weights, outputs);
    const std::size_t in = weights.in_features, out = weights.out_features;

    const QuantizedInputKernels* kernels = weights.kernels->quantized_inputs;
    if (kernels && kernels->for_many_tokens) {
        kernels->matmul(weights.dtype(), weights.rows(0, out), in,
                        quantize_inputs(inputs, *kernels, workspace), outputs, update);
        return;
    }

    // Multiply by float32 weights all at once. Dequantize others 64 rows at a time, and
    // multiply by them while they are in the processor's cache.
    const bool is_float32 = weights.dtype() == DType::float32;
    const std::size_t rows_at_once = is_float32 ? out : 64;
    workspace.dequantized.resize(is_float32 ? 0 : rows_at_once * in);
    for (std::size_t begin = 0; begin < out; begin += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, out - begin);
        matmul_transposed(inputs, rows_as_floats(weights, begin, count, workspace.dequantized),
                          outputs.columns(begin, count), update);
    }
}

}  // namespace llm
