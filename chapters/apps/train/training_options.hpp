// The options that chapter 13 and ./learn train share.
#pragma once

#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_task.hpp"
#include "common/system/options.hpp"

namespace llm::runs {

// Options that override the configuration or the training arguments; 0 means the default.
struct TrainingOptions {
    std::size_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0,
                num_attention_heads = 0, num_key_value_heads = 0, batch_size = 0, seq_len = 0,
                gradient_accumulation_steps = 0, steps = 0;
    float learning_rate = 0, weight_decay = 0.1f, max_grad_norm = 1, attention_dropout = 0;
    bool qk_norm = false;
    std::string optimizer = "adamw";
};

void add_training_options(Options& options, TrainingOptions& given);

// The task with these options. Throws ValueError for a model that cannot be, or that has more
// than 200 million parameters.
TrainingTask apply(const TrainingOptions& given, TrainingTask task);

// --folder, --resume, --save-steps and --dtype.
void add_folder_options(Options& options, RunFolder& folder, std::string& dtype);

}  // namespace llm::runs
