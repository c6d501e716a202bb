// Fine-tuning of a model in files, and its answers to held-out questions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace llm::fine_tune {

// Options without a default depend on the method; until it is known, they are 0, and beta -1.
struct FineTuningArguments {
    std::string model, adapter;      // the folder of a model, and of an adapter to continue
    std::string train, test;         // JSON Lines
    std::string task;                // only conversations of this task; empty: all
    std::string method = "sft";      // sft, sample, dpo or grpo
    std::string loss_type = "grpo";  // grpo, dapo or dr_grpo
    std::string folder;              // for the result; sample: the file of preferences
    bool full = false;               // train all parameters, without an adapter
    std::string dtype = "float32";   // of the model that full saves
    bool loss_on_everything = false;
    bool resume = false;         // continue the run whose checkpoint is in the folder
    std::size_t save_steps = 0;  // steps between checkpoints; 0: about a minute
    std::size_t steps = 0, batch_size = 0, lora_r = 8, group_size = 8, max_new_tokens = 48;
    float learning_rate = 0, lora_alpha = 16, beta = -1, rpo_alpha = 0;
    float temperature = 0;             // of the answers to test
    std::size_t test_questions = 100;  // of each task; 0: all
};

// Trains, tests, or both. Throws FileError if the result would overwrite something.
void fine_tune_model(const FineTuningArguments& arguments, std::uint32_t seed);

}  // namespace llm::fine_tune
