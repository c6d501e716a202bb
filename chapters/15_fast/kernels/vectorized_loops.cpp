// Loops that the compiler vectorizes by itself; the options are those of simd.cpp.
#include <cmath>

#include "chapters/15_fast/kernels/simd.hpp"

namespace llm {

void rms_norm(std::span<const Real> row, std::span<const Real> weight, Real eps,
              std::span<Real> output) {
    const Real rms = std::sqrt(dot(row, row) / static_cast<Real>(row.size()) + eps);
    for (std::size_t i = 0; i < row.size(); ++i) output[i] = row[i] / rms * weight[i];
}

void apply_rotary_embedding(std::span<Real> head, std::span<const Real> cos,
                            std::span<const Real> sin) {
    const std::size_t half = head.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
        const Real first = head[i], second = head[i + half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + half] = second * cos[i] + first * sin[i];
    }
}

}  // namespace llm
