#include "common/tensors/dtype.hpp"

#include <bit>
#include <cmath>

#include <stdexcept>

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
    }
    return "unknown dtype";
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
