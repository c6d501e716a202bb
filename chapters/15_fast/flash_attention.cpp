#include "chapters/15_fast/flash_attention.hpp"

#include <cmath>

#include "chapters/15_fast/simd.hpp"

namespace llm {
namespace {

Real attention_scale(std::size_t head_dim) {
    return 1 / std::sqrt(static_cast<Real>(head_dim));
}

// Some queries, at most a tile of them, and what they took so far.
void attend_tile(ConstRows queries, ConstRows keys, ConstRows values,
                 std::size_t first_position, Rows context) {
    const Real scale = attention_scale(keys.width);
    std::array<Real, tile_size * tile_size> memory;
    std::array<OnlineSoftmax, tile_size> softmax;
    for (std::size_t t = 0; t < queries.count; ++t) std::ranges::fill(context[t], Real(0));

    // Behind the last query's own position nobody sees anything: there the loop ends.
    const std::size_t seen = first_position + queries.count;
    for (std::size_t begin = 0; begin < seen; begin += tile_size) {
        const std::size_t size = std::min(tile_size, seen - begin);
        const Rows scores{memory.data(), queries.count, size, size};  // (tile, tile)
        multiply_rows(queries, keys.rows(begin, size), scores);

        for (std::size_t t = 0; t < queries.count; ++t) {
            // Of this tile, query t sees the keys up to its own position.
            const std::size_t position = first_position + t;
            const std::size_t visible =
                position < begin ? 0 : std::min(size, position - begin + 1);
            const Real factor = softmax[t].add(scores[t].first(visible), scale);
            std::ranges::fill(scores[t].subspan(visible), Real(0));
            if (factor != 1)
                for (Real& number : context[t]) number *= factor;
        }
        multiply(scores, values.rows(begin, size), context, Old::keep);
    }
    for (std::size_t t = 0; t < queries.count; ++t)
        for (Real& number : context[t]) number /= softmax[t].sum;
}

}  // namespace

Real OnlineSoftmax::add(std::span<Real> scores, Real scale) {
    if (scores.empty()) return 1;
    const Real new_maximum = std::max(maximum, scale * largest(scores));

    // What was added up before was relative to the old maximum.
    const Real factor = std::exp(maximum - new_maximum);
    sum = sum * factor + exponentials(scores, scale, new_maximum);
    maximum = new_maximum;
    return factor;
}

void attend_blockwise(ConstRows queries, ConstRows keys, ConstRows values,
                      std::size_t first_position, Rows context) {
    require(keys.count == values.count && first_position + queries.count <= keys.count,
            "attention: {} queries at {} do not fit {} keys and {} values", queries.count,
            first_position, keys.count, values.count);
    require(queries.width == keys.width && context.count == queries.count &&
                context.width == values.width,
            "attention: queries of ({}, {}), keys of ({}, {}) and values of ({}, {}) do not "
            "make ({}, {})",
            queries.count, queries.width, keys.count, keys.width, values.count, values.width,
            context.count, context.width);
    for (std::size_t begin = 0; begin < queries.count; begin += tile_size) {
        const std::size_t size = std::min(tile_size, queries.count - begin);
        attend_tile(queries.rows(begin, size), keys, values, first_position + begin,
                    context.rows(begin, size));
    }
}

void attend_one(std::span<const Real> query, ConstRows keys, ConstRows values,
                std::span<Real> weights, std::span<Real> context) {
    require(keys.count == values.count && weights.size() == keys.count &&
                query.size() == keys.width && context.size() == values.width,
            "attention: a query of {}, {} weights and a context of {} do not fit keys of "
            "({}, {}) and values of ({}, {})",
            query.size(), weights.size(), context.size(), keys.count, keys.width, values.count,
            values.width);
    for (std::size_t s = 0; s < keys.count; ++s) weights[s] = dot(query, keys[s]);
    OnlineSoftmax softmax;
    softmax.add(weights, attention_scale(keys.width));

    std::ranges::fill(context, Real(0));
    for (std::size_t s = 0; s < keys.count; ++s)
        add_scaled(context, weights[s] / softmax.sum, values[s]);
}

}  // namespace llm
