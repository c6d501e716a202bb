// How a GGUF file is written: the numbers of its types. Only the .cpp files of gguf.hpp include
// it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>

#include "common/numbers/ceil_div.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF files are little endian");

// The numbers that stand for the types of metadata. Source: ggml's gguf.h.
enum class ValueType : std::uint32_t {
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    float32,
    boolean,
    text,
    array,
    uint64,
    int64,
    float64
};

// The numbers that stand for the types of tensors that can be read. Source: ggml.h.
inline const std::map<std::uint32_t, DType> dtypes = {
    {0, DType::float32}, {1, DType::float16},   {2, DType::q4_0},
    {6, DType::q5_0},    {8, DType::q8_0},      {12, DType::q4_k},
    {14, DType::q6_k},   {30, DType::bfloat16}, {39, DType::mxfp4}};
inline constexpr std::array<char, 4> magic = {'G', 'G', 'U', 'F'};
inline constexpr std::size_t default_alignment = 32;

// The next multiple of the default alignment.
inline std::size_t padded(std::size_t size) {
    return ceil_div(size, default_alignment) * default_alignment;
}

}  // namespace llm::gguf
