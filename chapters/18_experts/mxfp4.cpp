#include "chapters/18_experts/mxfp4.hpp"

#include <cmath>

#include "chapters/16_quantization/block_types.hpp"

namespace llm {

Vector dequantize_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales) {
    require(blocks.size() == 16 * scales.size(),
            "dequantize_mxfp4: {} bytes of blocks do not match {} scales", blocks.size(),
            scales.size());
    Vector weights(std::array{32 * scales.size()});
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto byte = std::to_integer<unsigned>(blocks[i]);
        const int scale = std::to_integer<int>(scales[i / 16]);
        for (const std::size_t half : {0u, 1u}) {
            Real& weight = weights(2 * i + half);
            weight = std::ldexp(mxfp4_values[byte >> 4 * half & 15], scale - 127);
            require(scale != 255 && std::isfinite(weight),
                    "dequantize_mxfp4: block {} has a scale of {}: its weights are not finite",
                    i / 16, scale);
        }
    }
    return weights;
}

}  // namespace llm
