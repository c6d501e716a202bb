// Chapter 16, kernels: what a product of integers consists of. Only integer_products.cpp
// includes this file.
#pragma once

#include <span>

#include "chapters/16_quantization/kernels/integer_products.hpp"
#include "chapters/16_quantization/kernels/unpack_blocks.hpp"

namespace llm {
namespace {

// Quantized inputs, from some index on: the integers, and for each group of 16 or 32 of them
// the scale and the scaled sum. The sum is what the min of a group of weights is multiplied by:
// Σ (scale * value - min) * input = scale * Σ value * input - min * Σ input.
template <class T>
struct InputGroups {
    T* scales;
    T* sums;
};
struct QuantizedInputs {
    const std::int8_t* values;
    InputGroups<const Real> groups;
};

// In memory, the integers are followed by groups of 32 and groups of 16.
template <std::size_t group_size, class T>
InputGroups<T> input_groups(T* scales, std::size_t in_features) {
    if (group_size == 16) scales += 2 * (in_features / 32);
    return {scales, scales + in_features / group_size};
}

// A product, of any number of rows and tokens.
template <class Block>
struct Product {
    std::span<const std::byte> rows;
    std::size_t in_features;
    std::span<const std::byte> inputs;
    MatrixView outputs;
    Update update;

    std::size_t num_blocks() const { return in_features / Unpacker<Block>::block_size; }
    // The first blocks of some rows, as many as a register has lanes.
    const std::byte* group(std::size_t first_row) const {
        return &rows[first_row * num_blocks() * sizeof(Block)];
    }
    QuantizedInputs token(std::size_t n) const {
        const std::byte* memory = &inputs[quantized_input_bytes(n, in_features)];
        const auto [scales, sums] = input_groups<Unpacker<Block>::group_size>(
            reinterpret_cast<const Real*>(memory + in_features), in_features);
        return {reinterpret_cast<const std::int8_t*>(memory), {scales, sums}};
    }
};

}  // namespace
}  // namespace llm
