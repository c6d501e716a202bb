// Interpolation of values at equal distances.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// The weights of cubic interpolation from some points to others, along one axis of a picture:
// each row sums to 1, and has up to four weights that are not 0. Beyond the border, the last
// point is repeated. Source: torch.nn.functional.interpolate with mode="bicubic" and
// align_corners=False, which has Keys' kernel with a = -0.75.
Matrix cubic_weights(std::size_t from, std::size_t to);  // (to, from)

}  // namespace llm
