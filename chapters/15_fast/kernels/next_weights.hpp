// Chapter 15, kernels: prefetching while computing. Only files with SIMD instructions
// include this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <hwy/cache_control.h>

namespace llm {
namespace {

// Weights that will be multiplied soon. A loop of many steps prefetches a few cache lines of
// them in each step. The processor can wait for about a dozen lines at a time; if all lines
// were requested at once, the loop would wait, too.
struct NextWeights {
    std::span<const std::byte> memory;
    std::size_t lines_per_step;

    void prefetch_step() {
        constexpr std::size_t cache_line = 64;
        for (std::size_t k = 0; k < lines_per_step && !memory.empty(); ++k) {
            hwy::Prefetch(memory.data());
            memory = memory.subspan(std::min(cache_line, memory.size()));
        }
    }
};

// The lines of the memory, divided among the steps and rounded up.
inline NextWeights prefetch_in_steps(std::span<const std::byte> memory, std::size_t num_steps) {
    const std::size_t bytes_of_lines = std::max<std::size_t>(num_steps, 1) * 64;
    return {memory, (memory.size() + bytes_of_lines - 1) / bytes_of_lines};
}

}  // namespace
}  // namespace llm
