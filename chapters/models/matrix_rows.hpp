// Rows of linear layers in files: several layers in one matrix, and pairs that RoPE rotates.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "chapters/02_projections/linear.hpp"
#include "chapters/09_full_model/model_tensors.hpp"

namespace llm::models {

// Some rows of a linear layer for each of several groups: group g has those from
// first + g · rows on.
template <class AnyLinear>
struct GroupRows {
    AnyLinear* linear;
    std::size_t first, rows;
};

// One linear layer with the rows of the first group, part by part, then those of the second,
// and so on; likewise the biases, if there are any.
template <std::size_t N>
Linear fuse_groups(const std::array<GroupRows<const Linear>, N>& parts,
                   std::size_t num_groups) {
    std::vector<Real> weights, biases;
    const std::size_t in = parts.front().linear->weight.shape(1);
    for (std::size_t g = 0; g < num_groups; ++g)
        for (const auto& [linear, first, rows] : parts) {
            const auto begin = std::ptrdiff_t(first + g * rows),
                       end = begin + std::ptrdiff_t(rows);
            const auto width = std::ptrdiff_t(in);
            weights.insert(weights.end(), linear->weight.begin() + begin * width,
                           linear->weight.begin() + end * width);
            if (linear->bias)
                biases.insert(biases.end(), linear->bias->begin() + begin,
                              linear->bias->begin() + end);
        }
    Linear fused{Matrix(std::array{weights.size() / in, in}), std::nullopt};
    std::copy(weights.begin(), weights.end(), fused.weight.begin());
    if (biases.empty()) return fused;
    fused.bias = Vector(std::array{biases.size()});
    std::copy(biases.begin(), biases.end(), fused.bias->begin());
    return fused;
}

// Reads such a matrix, and gives each linear layer its rows.
template <class Reader, std::size_t N>
void split_groups(Reader& reader, const std::string& name,
                  const std::array<GroupRows<Linear>, N>& parts, std::size_t in,
                  std::size_t num_groups) {
    std::size_t group_rows = 0;
    for (const auto& part : parts) group_rows += part.rows;
    Linear all = empty_linear(parts.front().linear->bias.has_value());
    reader.linear(name, all, num_groups * group_rows, in);
    for (const auto& [linear, first, rows] : parts) {
        std::size_t out = 0;  // of this linear layer, which may have several parts
        for (const auto& other : parts)
            if (other.linear == linear) out += num_groups * other.rows;
        linear->weight.resize({out, in});
        if (linear->bias) linear->bias->resize({out});
    }
    for (std::size_t g = 0, row = 0; g < num_groups; ++g)
        for (const auto& [linear, first, rows] : parts)
            for (std::size_t r = 0; r < rows; ++r, ++row) {
                const std::size_t target = first + g * rows + r;
                xt::view(linear->weight, target, xt::all()) =
                    xt::view(all.weight, row, xt::all());
                if (all.bias) (*linear->bias)(target) = (*all.bias)(row);
            }
}

template <class AnyLinear>
GroupRows<AnyLinear> group_rows(AnyLinear& linear, std::size_t first, std::size_t count) {
    return {&linear, first, count};
}

// The rows first to first + count - 1 of each head, which RoPE rotates.
struct RotatedRows {
    std::size_t num_heads, first, count;
};
// Reorders these rows, and the bias: row i of them becomes row source(i, count).
inline Linear reorder_rows(const Linear& linear, const RotatedRows& rows,
                           std::size_t (*source)(std::size_t index, std::size_t count)) {
    Linear result = linear;
    const std::size_t head_rows = linear.weight.shape(0) / rows.num_heads;
    for (std::size_t h = 0; h < rows.num_heads; ++h)
        for (std::size_t i = 0; i < rows.count; ++i) {
            const std::size_t first = h * head_rows + rows.first;
            const std::size_t from = first + source(i, rows.count);
            xt::view(result.weight, first + i, xt::all()) =
                xt::view(linear.weight, from, xt::all());
            if (linear.bias) (*result.bias)(first + i) = (*linear.bias)(from);
        }
    return result;
}

}  // namespace llm::models
