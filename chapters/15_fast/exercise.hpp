// Chapter 12, exercises. Write your answers into exercise.cpp; ./learn exercise 12 checks them.
#pragma once

#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/quantized_matrix.hpp"

namespace exercise {

using namespace llm;

// What attention gives a single query: softmax(scores) · values. Scores and values are read in
// pieces, each of them once.
Vector context_in_pieces(const Vector& scores,     // (S)
                         const Matrix& values,     // (S, D)
                         std::size_t piece_size);  // -> (D)

// The dot product of two rows of one size, whatever it is.
Real dot_side_by_side(std::span<const Real> a, std::span<const Real> b);

// The keys of a tile stand at begin, begin + 1, ..., begin + size - 1. How many of them may a
// query see that stands at position?
std::size_t visible_keys(std::size_t position, std::size_t begin, std::size_t size);

// What an Int8Row of the lesson refers to: whole numbers, and a scale for each 64 of them.
struct QuantizedRow {
    std::vector<std::int8_t> numbers;  // (n), -127 to 127
    std::vector<Real> scales;
};
QuantizedRow quantize(const Vector& row);  // (n)

// The upper half of a float. Widened again, it is as near to the number as 16 bits allow. Of
// two that are equally near, it is the even one.
Bfloat16 narrowed(float number);

// What a query took from some of the keys, relative to their largest score: the sum of all
// e^(score - maximum), and the sum of the values times these. It is divided at the very end.
struct Partial {
    Real maximum = -infinity;  // as here if there was no key
    Real sum = 0;
    Vector context;  // (D), zeros if there was no key
};
Partial merge(const Partial& a, const Partial& b);

// The dot product of weights and inputs, both of them in 8 bits and in groups of 64.
Real integer_dot(const Int8Row& weights, const Int8Row& inputs);

// A row of weights in 4 bits: whole numbers from -7 to 7, each 32 of which share a scale. Two
// numbers make a byte, each with 8 added to it: the first one fills the lower half.
struct Int4Row {
    std::size_t size = 0;             // n
    std::vector<std::uint8_t> bytes;  // ceil(n / 2)
    std::vector<Real> scales;         // ceil(n / 32)
};
Int4Row pack_int4(const Vector& row);       // (n)
Vector unpack_int4(const Int4Row& packed);  // (n)

}  // namespace exercise
