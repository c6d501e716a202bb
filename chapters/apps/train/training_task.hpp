// What a training run learns from, and how: for chapter 13, ./learn train and the experiments.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/13_training/trainer.hpp"

namespace llm::runs {

// Tokenizer, data, configuration and hyperparameters of a run.
struct TrainingTask {
    Tokenizer tokenizer;
    Dataset dataset;
    Config config = mini_llm_config();
    TrainingArguments args;
    bool steps_given = false;  // otherwise a resumed run takes max_steps from its checkpoint
    std::vector<Id> eos_token_ids = {};  // of documents
};

// Configurations and hyperparameters, without data: 138,000 parameters for the first names of
// assets/, and, with a vocabulary of 1024, 1.8 million for a text. The encoder of --masked-lm,
// with a vocabulary of 2048, has half a million.
TrainingTask names_task();
TrainingTask text_task();
TrainingTask masked_lm_task();

// Shuffles the names, and splits their tokens into training and validation sets. Returns them.
std::vector<std::string> load_names(TrainingTask& task, Generator& generator);

// Trains a tokenizer on the text, and splits the tokens into training and validation sets.
void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size);

// Sets max_steps, and warmup_steps to a tenth of it, but at most 100.
void set_max_steps(LRSchedule& schedule, std::size_t max_steps);

std::size_t tokens_per_step(const TrainingArguments& args);

}  // namespace llm::runs
