// Chapter 14: the steps of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace llm {

void dpo_demo();   // preference.cpp
void grpo_demo();  // reward.cpp

// The number of steps of each part of the training run.
struct RunLengths {
    std::size_t base = 200, sft = 80, grpo = 40;
};
void training_demo(const RunLengths& steps, std::uint32_t seed);  // training.cpp

// The answer to a question, token by token: ask.cpp. Without a model, that of assets/.
struct AskArguments {
    std::string question, model, adapter;
    std::size_t max_new_tokens = 48;
};
void ask_demo(AskArguments arguments);

}  // namespace llm
