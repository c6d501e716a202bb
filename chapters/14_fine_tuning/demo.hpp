// Chapter 14: the steps of the program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm {

void dpo_demo();   // preference_demo.cpp
void grpo_demo();  // reward_demo.cpp

// The number of steps of each part of the training run.
struct RunLengths {
    std::size_t base = 200, sft = 80, grpo = 40;
};
void training_demo(const RunLengths& steps, std::uint32_t seed);  // training_demo.cpp

}  // namespace llm
