// Chapter 12, part 4 — Weights in fewer bytes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "chapters/15_fast/simd.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

// How weights are kept. Whatever it is, sums are made of floats.
enum class Weights {
    float32,   // 4 bytes
    bfloat16,  // 2: a float's upper half, rounded
    int8       // 1, and a float for each 64: a whole number times a scale
};
inline constexpr std::array all_weights = {Weights::float32, Weights::bfloat16, Weights::int8};
std::string name_of(Weights kind);

// A matrix of weights.
struct PackedMatrix {
    Weights kind = Weights::float32;
    std::size_t out_features = 0, in_features = 0;
    // Row after row, in one of these.
    std::vector<Real> floats;
    std::vector<Bfloat16> bfloats;
    std::vector<std::int8_t> bytes;
    std::vector<Real> scales;  // of bytes: ceil(in / 64) for every row

    // The dot product of one row with an input, and the row itself as floats.
    Real dot_row(std::size_t row, std::span<const Real> inputs) const;  // (in)
    void unpack_row(std::size_t row, std::span<Real> weights) const;    // (in)

    Int8Row int8_row(std::size_t row) const;
    std::size_t memory() const;  // bytes
};

// Rounds to the nearest. Throws ShapeError if a weight is not finite.
PackedMatrix pack(const Matrix& weights, Weights kind);  // (out, in)
Matrix unpack(const PackedMatrix& weights);              // (out, in)

// Outputs of one token, on all cores: outputs = weights · inputs, or outputs + it. The weights
// are what has to be read, so every core takes some of their rows.
void project_token(const PackedMatrix& weights, std::span<const Real> inputs,  // (in)
                   std::span<Real> outputs, Old old = Old::replace);           // (out)

// Outputs of many tokens, on one core: inputs · weightsᵀ. Rows in fewer bytes are unpacked just
// before they are needed, some at a time, into scratch.
void project_tokens(const PackedMatrix& weights, ConstRows inputs,  // (N, in)
                    Rows outputs,                                   // (N, out)
                    std::vector<Real>& scratch, Old old = Old::replace);

}  // namespace llm
