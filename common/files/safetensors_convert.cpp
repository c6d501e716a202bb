// The elements of a tensor as Reals.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "common/files/safetensors.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/tensors/half.hpp"

namespace llm {
namespace {

template <class T>
T read_as(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

// The values of the bytes of an FP8 type; null for another type.
const Float8Values* float8_values(const std::string& type) {
    if (type == "F8_E4M3") return &e4m3_values();
    return type == "F8_E5M2" ? &e5m2_values() : nullptr;
}

}  // namespace

bool SafeTensors::has_fp8_scales(const std::string& name) const {
    if (!name.ends_with(scale_suffix)) return false;
    const auto weights = tensors_.find(name.substr(0, name.size() - scale_suffix.size()));
    return weights != tensors_.end() && float8_values(weights->second.type);
}

void SafeTensors::check(const std::string& name, std::span<const std::size_t> shape) const {
    const Entry& entry = entry_of(name, shape);
    const bool is_fp8_matrix = float8_values(entry.type) && shape.size() >= 2;
    if (entry.type != "F32" && entry.type != "F16" && entry.type != "BF16" && !is_fp8_matrix)
        throw FileError(
            fmt::format("{}: tensor {} is of type {}; F32, F16, BF16, and matrices of F8_E4M3 "
                        "and F8_E5M2 can be read",
                        files_[entry.file].path().string(), name, entry.type));
}

void SafeTensors::reject_element(const std::string& name) const {
    throw FileError(fmt::format("{}: tensor {} has an element that is not finite",
                                files_[tensors_.at(name).file].path().string(), name));
}

void SafeTensors::convert(const std::string& name, std::span<Real> elements) const {
    const Entry& entry = tensors_.at(name);
    const std::byte* bytes = entry.bytes.data();
    const auto convert_each = [&](auto element_at) {
        for (std::size_t i = 0; i < elements.size(); ++i) {
            elements[i] = element_at(i);
            if (!std::isfinite(elements[i])) reject_element(name);
        }
    };
    if (entry.type == "F32")
        convert_each([&](std::size_t i) { return read_as<float>(bytes + 4 * i); });
    if (entry.type == "F16")
        convert_each(
            [&](std::size_t i) { return static_cast<float>(read_as<Half>(bytes + 2 * i)); });
    if (entry.type == "BF16")
        convert_each([&](std::size_t i) { return to_float(read_as<Bfloat16>(bytes + 2 * i)); });
    if (const Float8Values* values = float8_values(entry.type))
        convert_fp8(name, *values, elements);
    files_[entry.file].forget(entry.bytes);
}

// Source: DeepSeek-V3, inference/kernel.py, weight_dequant.
void SafeTensors::convert_fp8(const std::string& name, const Float8Values& values,
                              std::span<Real> elements) const {
    const Entry& entry = tensors_.at(name);
    const std::size_t rank = entry.shape.size();
    const std::size_t rows = entry.shape[rank - 2], columns = entry.shape[rank - 1];
    const auto [block_rows, block_columns] =
        weight_block_size_.value_or(std::array{rows, columns});

    // Read the scales. That of a single matrix without blocks is a number.
    const std::size_t num_row_blocks = weight_block_size_ ? ceil_div(rows, block_rows) : 1,
                      num_blocks = weight_block_size_ ? ceil_div(columns, block_columns) : 1;
    std::vector<std::size_t> scale_shape = entry.shape;
    scale_shape[rank - 2] = num_row_blocks;
    scale_shape[rank - 1] = num_blocks;  // of a row
    if (!weight_block_size_ && rank == 2) scale_shape.clear();
    std::vector<Real> scales(element_count(scale_shape));
    read(name + scale_suffix, scale_shape, scales);

    // Multiply each value by the scale of its block. Rows of several matrices follow one
    // another.
    for (std::size_t row = 0; row * columns < elements.size(); ++row) {
        const std::size_t row_block = row / rows * num_row_blocks + row % rows / block_rows;
        for (std::size_t column = 0; column < columns;) {
            const Real scale = scales[row_block * num_blocks + column / block_columns];
            const std::size_t end = std::min(columns, column + block_columns);
            for (; column < end; ++column) {
                const std::size_t i = row * columns + column;
                elements[i] = values[std::to_integer<std::size_t>(entry.bytes[i])] * scale;
                if (!std::isfinite(elements[i])) reject_element(name);
            }
        }
    }
}

}  // namespace llm
