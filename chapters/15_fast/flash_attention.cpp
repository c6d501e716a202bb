#include "chapters/15_fast/flash_attention.hpp"

#include <cmath>

#include "chapters/15_fast/kernels/simd.hpp"

namespace llm {
namespace {

Real attention_scale(std::size_t head_dim) {
    return 1 / std::sqrt(static_cast<Real>(head_dim));
}

void scale_row(std::span<Real> row, Real factor) {
    for (Real& element : row) element *= factor;
}

// Attention of one tile of at most tile_size queries.
void flash_attention_of_tile(ConstMatrixView queries, const CachedRows& keys,
                             const CachedRows& values, std::size_t first_position,
                             MatrixView context, std::span<Real> workspace, WindowSize window) {
    const Real scale = attention_scale(keys.num_columns());
    std::array<Real, tile_size * tile_size> memory;
    std::array<OnlineSoftmax, tile_size> softmax;
    for (std::size_t t = 0; t < queries.num_rows; ++t) std::ranges::fill(context[t], Real(0));

    // Keys outside the windows of all queries are masked: the loop starts and ends there.
    const auto first_key = [&](std::size_t position) {
        return position - std::min(position, window.left);
    };
    const std::size_t kv_len =
        std::min(keys.num_rows(), first_position + queries.num_rows + window.right);
    for (std::size_t begin = first_key(first_position), size = 0; begin < kv_len;
         begin += size) {
        size = std::min(tile_size, kv_len - begin);
        const MatrixView scores{memory.data(), queries.num_rows, size, size};  // (T, size)
        matmul_transposed(queries, keys.read(begin, size, workspace), scores);

        for (std::size_t t = 0; t < queries.num_rows; ++t) {
            // Query t attends to the keys of this tile that are in its window.
            const std::size_t first = first_key(first_position + t);
            const std::size_t last = first_position + t + window.right;
            const std::size_t from = first < begin ? 0 : std::min(size, first - begin);
            const std::size_t to = last < begin ? 0 : std::min(size, last - begin + 1);
            const Real factor = softmax[t].update(scores[t].subspan(from, to - from), scale);
            std::ranges::fill(scores[t].first(from), Real(0));
            std::ranges::fill(scores[t].subspan(to), Real(0));
            if (factor != 1) scale_row(context[t], factor);
        }
        matmul(scores, values.read(begin, size, workspace), context, Update::accumulate);
    }
    for (std::size_t t = 0; t < queries.num_rows; ++t)
        for (Real& element : context[t]) element /= softmax[t].sum;
}

}  // namespace

Real OnlineSoftmax::update(std::span<Real> scores, Real scale) {
    if (scores.empty()) return 1;
    const Real new_maximum = std::max(maximum, scale * amax(scores));

    // Rescale the sum so far from the old maximum to the new one.
    const Real factor = std::exp(maximum - new_maximum);
    sum = sum * factor + exp_and_sum(scores, scale, new_maximum);
    maximum = new_maximum;
    return factor;
}

void flash_attention(ConstMatrixView queries, const CachedRows& keys, const CachedRows& values,
                     std::size_t first_position, MatrixView context, std::span<Real> workspace,
                     WindowSize window) {
    require(keys.num_rows() == values.num_rows() &&
                first_position + queries.num_rows <= keys.num_rows(),
            "attention: {} queries at position {} do not fit {} keys and {} values",
            queries.num_rows, first_position, keys.num_rows(), values.num_rows());
    require(queries.num_columns == keys.num_columns() && context.num_rows == queries.num_rows &&
                context.num_columns == values.num_columns(),
            "attention: queries of ({}, {}), keys of ({}, {}) and values of ({}, {}) do not "
            "fit a context of ({}, {})",
            queries.num_rows, queries.num_columns, keys.num_rows(), keys.num_columns(),
            values.num_rows(), values.num_columns(), context.num_rows, context.num_columns);
    for (std::size_t begin = 0; begin < queries.num_rows; begin += tile_size) {
        const std::size_t size = std::min(tile_size, queries.num_rows - begin);
        flash_attention_of_tile(queries.rows(begin, size), keys, values, first_position + begin,
                                context.rows(begin, size), workspace, window);
    }
}

void decode_attention(std::span<const Real> query, const CachedRows& keys,
                      const CachedRows& values, std::span<Real> scores,
                      std::span<Real> context) {
    require(keys.num_rows() == values.num_rows() && scores.size() == keys.num_rows() &&
                query.size() == keys.num_columns() && context.size() == values.num_columns(),
            "attention: a query of {}, {} scores and a context of {} do not fit keys of "
            "({}, {}) and values of ({}, {})",
            query.size(), scores.size(), context.size(), keys.num_rows(), keys.num_columns(),
            values.num_rows(), values.num_columns());
    keys.dot_rows(query, scores);
    OnlineSoftmax softmax;
    softmax.update(scores, attention_scale(keys.num_columns()));

    std::ranges::fill(context, Real(0));
    values.add_weighted_rows(scores, context);
    scale_row(context, 1 / softmax.sum);
}

}  // namespace llm
