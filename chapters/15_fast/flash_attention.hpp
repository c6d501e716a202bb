// Chapter 12, part 3 — Attention that never holds a (T, S) matrix.
#pragma once

#include "common/tensors/matmul.hpp"

namespace llm {

// Queries and keys meet in tiles of so many tokens: one tile of scores is 16 KB and fits into
// the fastest memory of a core.
inline constexpr std::size_t tile_size = 64;

// A softmax that reads its scores in pieces: weights relative to the largest score so far, and
// their sum. When a larger one comes, what was added up before shrinks by a factor. Source:
// "Online normalizer calculation for softmax" (Milakov and Gimelshein, 2018).
struct OnlineSoftmax {
    Real maximum = -infinity;
    Real sum = 0;

    // Turns scores into e^(scale * score - maximum), and returns the factor for all sums from
    // before. No scores change nothing.
    Real add(std::span<Real> scores, Real scale);
};

// One head's attention, causal, as in chapter 05. The queries stand at first_position and
// behind it; each sees the keys from 0 to its own position. Nothing that is hidden is computed,
// but for the upper halves of tiles on the diagonal. Throws ShapeError if the sizes do not fit.
// Source: "FlashAttention-2" (Dao, 2023), algorithm 1.
void attend_blockwise(ConstRows queries,           // (T, D)
                      ConstRows keys,              // (S, D)
                      ConstRows values,            // (S, D)
                      std::size_t first_position,  // S - T if the queries are the last ones
                      Rows context);               // (T, D)

// The same for a single query, which sees all keys. weights is memory for S numbers. Throws
// ShapeError if the sizes do not fit.
void attend_one(std::span<const Real> query,  // (D)
                ConstRows keys,               // (S, D)
                ConstRows values,             // (S, D)
                std::span<Real> weights,      // (S)
                std::span<Real> context);     // (D)

}  // namespace llm
