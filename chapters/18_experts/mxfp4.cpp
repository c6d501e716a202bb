#include "chapters/18_experts/mxfp4.hpp"

#include <cmath>

namespace llm {

Vector dequantize_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales) {
    require(blocks.size() == 16 * scales.size(),
            "dequantize_mxfp4: {} bytes of blocks do not match {} scales", blocks.size(),
            scales.size());
    constexpr Real values[] = {0,  Real(0.5),  1,  Real(1.5),  2,  3,  4,  6,
                               -0, Real(-0.5), -1, Real(-1.5), -2, -3, -4, -6};
    Vector weights(std::array{32 * scales.size()});
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto byte = std::to_integer<unsigned>(blocks[i]);
        const int exponent = std::to_integer<int>(scales[i / 16]) - 127;
        weights(2 * i) = std::ldexp(values[byte & 15], exponent);
        weights(2 * i + 1) = std::ldexp(values[byte >> 4], exponent);
    }
    return weights;
}

}  // namespace llm
