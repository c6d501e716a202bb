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

// Fine-tuning of a model in files: model.cpp. Options without a default are 0 here and
// depend on the method.
struct ModelArguments {
    std::string model, adapter;  // the folder of a model, and of an adapter to continue
    std::string train, test;     // JSON Lines
    std::string ask;             // one question
    std::string task;            // only conversations of this task; empty: all
    std::string method = "sft";  // sft, sample, dpo or grpo
    std::string folder;          // for the result; sample: the file of preferences
    bool full = false;           // train all parameters, without an adapter
    bool loss_on_everything = false;
    std::size_t steps = 0, batch_size = 0, lora_r = 8, group_size = 8, max_new_tokens = 48;
    float learning_rate = 0, lora_alpha = 16, beta = -1;
    float temperature = 0;             // of the answers to test
    std::size_t test_questions = 100;  // of each task; 0: all
};
void model_demo(const ModelArguments& arguments, std::uint32_t seed);

// The answer to `ask`, token by token: ask.cpp. Without a model, that of assets/.
void ask_demo(const ModelArguments& arguments);

}  // namespace llm
