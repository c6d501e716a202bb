// Chapter 15, exercises. Write your answers into exercise.cpp; ./learn exercise 15 checks them.
#pragma once

#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "common/tensors/dtype.hpp"

namespace exercise {

using namespace llm;

// Attention of a single query, softmax(scores) * values, with an online softmax: scores and
// values are read in blocks, each of them once.
Vector attention_in_blocks(const Vector& scores,     // (S)
                           const Matrix& values,     // (S, D)
                           std::size_t block_size);  // -> (D)

// The dot product of two rows of the same size, which may be any.
Real dot_with_four_sums(std::span<const Real> a, std::span<const Real> b);

// The keys of a tile are at positions begin, begin + 1, ..., begin + size - 1. Returns how many
// of them a query at this position attends to.
std::size_t num_unmasked_keys(std::size_t position, std::size_t begin, std::size_t size);

// Rounds to the nearest bfloat16, ties to even.
Bfloat16 round_to_bfloat16(float number);

// The attention of a query to some of the keys, before the division by the sum. Sum and context
// are relative to the largest score of these keys.
struct PartialAttention {
    Real maximum = -infinity;  // the largest score; -inf without keys
    Real sum = 0;              // of exp(score - maximum)
    Vector context;            // (D), the sum of exp(score - maximum) * value
};
PartialAttention merge(const PartialAttention& a, const PartialAttention& b);

Vector predicted_gflops();          // (3)
Vector predicted_online_softmax();  // (4)
Vector predicted_tiles();           // (2)

}  // namespace exercise
