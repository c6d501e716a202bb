#include "common/tensors/dtype.hpp"

#include <bit>
#include <cmath>

#include "common/tensors/shape.hpp"

namespace llm {

std::vector<std::string> dtype_names() {
    std::vector<std::string> names;
    for (const DType dtype : all_dtypes) names.emplace_back(to_text(dtype));
    return names;
}

DType dtype_named(std::string_view name) {
    for (const DType dtype : all_dtypes)
        if (to_text(dtype) == name) return dtype;
    throw ValueError("there is no dtype " + std::string(name));
}

std::string_view to_text(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "float32";
        case DType::float16:
            return "float16";
        case DType::bfloat16:
            return "bfloat16";
        case DType::q8_0:
            return "q8_0";
        case DType::q4_0:
            return "q4_0";
        case DType::q5_0:
            return "q5_0";
        case DType::q4_k:
            return "q4_k";
        case DType::q6_k:
            return "q6_k";
        case DType::mxfp4:
            return "mxfp4";
    }
    return "unknown dtype";
}

std::size_t block_size(DType dtype) {
    switch (dtype) {
        case DType::q8_0:
        case DType::q4_0:
        case DType::q5_0:
        case DType::mxfp4:
            return 32;
        case DType::q4_k:
        case DType::q6_k:
            return 256;
        default:
            return 1;
    }
}

std::size_t bytes_per_block(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return 4;
        case DType::float16:
        case DType::bfloat16:
            return 2;
        case DType::q8_0:
            return 34;
        case DType::q4_0:
            return 18;
        case DType::q5_0:
            return 22;
        case DType::q4_k:
            return 144;
        case DType::q6_k:
            return 210;
        case DType::mxfp4:
            return 17;
    }
    throw_value_error("bytes_per_block: unknown dtype", {});
}

std::size_t bytes_per_row(DType dtype, std::size_t in_features) {
    require(in_features % block_size(dtype) == 0,
            "{}: a row of {} weights does not consist of blocks of {}", to_text(dtype),
            in_features, block_size(dtype));
    return in_features / block_size(dtype) * bytes_per_block(dtype);
}

Bfloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);

    // A NaN must not be rounded to infinity: keep its upper half and set the quiet bit.
    if (std::isnan(value)) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};

    // Add just under half of the last bit that is kept, or half if that bit is odd; truncate.
    const std::uint32_t last_kept_bit = bits >> 16 & 1;
    return {static_cast<std::uint16_t>((bits + 0x7FFF + last_kept_bit) >> 16)};
}

float to_float(Bfloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

}  // namespace llm
