// Chapter 12, part 2 — Several numbers at a time.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensors/real.hpp"

namespace llm {

// A processor's vector registers hold 4, 8 or 16 floats, its lanes, and one instruction works
// on all of them. These functions are compiled for the machine they are built on.

// Sums of products a·b, added up in lanes: another order than one by one, so the last digits
// differ. All spans of a call have one size; nobody checks it here.
Real dot(std::span<const Real> a, std::span<const Real> b);

// The same for a row of weights in fewer bits, which are widened in registers.
// A bfloat16 is the upper half of a float.
struct Bfloat16 {
    std::uint16_t bits = 0;
};
Real dot(std::span<const Bfloat16> row, std::span<const Real> inputs);

// Small whole numbers; each 64 of a row share a scale: weight = number * scale.
inline constexpr std::size_t group_size = 64;
struct Int8Row {
    std::span<const std::int8_t> numbers;  // -127 to 127
    std::span<const Real> scales;          // one for each group, the last may be smaller
};
Real dot(const Int8Row& row, std::span<const Real> inputs);

// The weights of a row as floats.
void unpack(std::span<const Bfloat16> row, std::span<Real> weights);
void unpack(const Int8Row& row, std::span<Real> weights);

// sums += factor * numbers.
void add_scaled(std::span<Real> sums, Real factor, std::span<const Real> numbers);

// The largest number; -inf if there is none.
Real largest(std::span<const Real> numbers);

// Each number x becomes e^(scale * x - shift). Returns their sum.
Real exponentials(std::span<Real> numbers, Real scale, Real shift);

// The norm of chapter 07 for one row, of which normalized may be the same memory, and the
// rotation of chapter 04 for one head, with the cosines and sines of its position (half a head
// each).
void normalize(std::span<const Real> row, std::span<const Real> weight, Real eps,
               std::span<Real> normalized);
void rotate_head(std::span<Real> head, std::span<const Real> cos, std::span<const Real> sin);

// The gate of chapter 06: gate = silu(gate) * up.
void apply_gate(std::span<Real> gate, std::span<const Real> up);

}  // namespace llm
