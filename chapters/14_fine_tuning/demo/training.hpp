// Chapter 14, steps of the program: a model that learns to answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/tensors/real.hpp"

namespace llm {

// The number of steps of each part of the training run, and the weight of GRPO's KL penalty.
struct RunArguments {
    std::size_t base_steps = 200, sft_steps = 30, grpo_steps = 300;
    Real beta = Real(0.04);
};
void training_demo(const RunArguments& arguments, std::uint32_t seed);

}  // namespace llm
