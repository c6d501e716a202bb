// Fine-tuning of a model in files, and its answers to held-out questions.
#pragma once

#include <variant>

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/apps/runs/run_folder.hpp"

namespace llm::fine_tune {

struct Steps {
    std::size_t count, batch_size;  // a batch of conversations, pairs or questions
    float learning_rate;            // after warm-up
};
// Warm-up, then down to a tenth of the learning rate.
LRSchedule schedule_of(const Steps& steps);

// Trains on the answers of conversations.
struct Sft {
    static constexpr const char* name = "sft";
    Steps steps{600, 32, 0.003f};
    bool loss_on_everything = false;

    std::vector<Setting> settings() const {
        return {{"--loss-on-everything", std::size_t(loss_on_everything)}};
    }
};

// Asks questions at temperature 1, and writes preferences: the correct answer (chosen) and a
// wrong one of the model (rejected).
struct Sample {
    static constexpr const char* name = "sample";
    Steps steps{60, 32, 0};
};

// Trains on preferences.
struct Dpo {
    static constexpr const char* name = "dpo";
    Steps steps{60, 32, 0.0002f};
    float beta = 0.1f, rpo_alpha = 0;

    std::vector<Setting> settings() const {
        return {{"--beta", beta}, {"--rpo-alpha", rpo_alpha}};
    }
};

// Trains on questions, with sampled answers.
struct Grpo {
    static constexpr const char* name = "grpo";
    Steps steps{60, 16, 0.0005f};
    float beta = 0.04f;
    std::string loss_type = "grpo";  // grpo, dapo or dr_grpo
    std::size_t group_size = 8;

    std::vector<Setting> settings() const {
        return {{"--beta", beta}, {"--loss-type", loss_type}, {"--group-size", group_size}};
    }
};

using Method = std::variant<Sft, Sample, Dpo, Grpo>;

struct FineTuningTask {
    std::string model, adapter;  // the folder of a model, and of an adapter to continue
    std::string train, test;     // JSON Lines
    std::string task;            // only conversations of this task; empty: all
    Method method;
    runs::RunFolder folder;  // of the result; the path of Sample is the file of preferences
    bool full = false;       // train all parameters, without an adapter
    std::size_t lora_r = 8, max_new_tokens = 48;
    float lora_alpha = 16, temperature = 0;  // the latter of the answers to test
    std::size_t test_questions = 100;        // of each task; 0: all
    std::uint32_t seed = 77;
};

// Trains, tests, or both. Throws FileError if the result would overwrite something.
void fine_tune_model(const FineTuningTask& task);

}  // namespace llm::fine_tune
