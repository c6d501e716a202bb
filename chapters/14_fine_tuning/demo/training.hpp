// Chapter 14, steps of the program: a model that learns to answer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm {

// The number of steps of each part of the training run.
struct RunLengths {
    std::size_t base = 200, sft = 80, grpo = 40;
};
void training_demo(const RunLengths& steps, std::uint32_t seed);

}  // namespace llm
