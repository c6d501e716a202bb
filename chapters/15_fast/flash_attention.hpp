// Chapter 15, file 2 of 10: attention that does not store the (T, S) matrix of attention
// weights.
#pragma once

#include <limits>

#include "chapters/15_fast/cached_rows.hpp"

namespace llm {

// The side of a tile of attention scores: 64 x 64 floats are 16 KB, which fit into a core's L1
// cache.
inline constexpr std::size_t tile_size = 64;

// A softmax over scores that are read in blocks, in one pass. It keeps the largest score so far
// and the sum of exp(score - maximum). When a block has a larger maximum, the sum so far is
// rescaled by exp(old maximum - new maximum). Source: "Online normalizer calculation for
// softmax" (Milakov and Gimelshein, 2018).
struct OnlineSoftmax {
    Real maximum = -infinity;
    Real sum = 0;

    // Replaces the scores of a block by exp(scale * score - maximum), and returns the factor by
    // which the caller must rescale its own earlier sums. An empty block changes nothing.
    Real update(std::span<Real> scores, Real scale);
};

// How many keys before and after its own a query attends to. The default is causal attention:
// all keys before it, none after it. Source: FlashAttention's window_size.
struct WindowSize {
    std::size_t left = std::numeric_limits<std::size_t>::max(), right = 0;
};

// Attention of one head, as in chapter 05, tile by tile. The queries are at positions
// first_position, first_position + 1, ...; each attends to the keys in its window, by default
// from position 0 to its own.
// Tiles that are fully masked are not computed. Keys and values that are float16 or in pages
// are copied to the workspace as floats, tile by tile. Throws ValueError if the shapes do not
// match. Source: "FlashAttention-2" (Dao, 2023), algorithm 1.
void flash_attention(ConstMatrixView queries,         // (T, D)
                     const CachedRows& keys,          // (S, D)
                     const CachedRows& values,        // (S, D)
                     std::size_t first_position,      // S - T for the last T positions
                     MatrixView context,              // (T, D)
                     std::span<Real> workspace = {},  // (tile_size * D)
                     WindowSize window = {});

// The same for a single query that attends to all keys, as in a decode step. Throws ValueError
// if the shapes do not match.
void decode_attention(std::span<const Real> query,  // (D)
                      const CachedRows& keys,       // (S, D)
                      const CachedRows& values,     // (S, D)
                      std::span<Real> scores,       // (S), a workspace
                      std::span<Real> context);     // (D)

}  // namespace llm
