// ./learn experiment NAME: trainings that compare models. Each shows tables and draws figures,
// and takes minutes. Ctrl-C ends the program.
#pragma once

#include <string>
#include <vector>

#include "chapters/apps/train/training_task.hpp"

namespace llm {

// Norm placements at three learning rates, and single changes of a baseline. (Chapter 13.)
void compare_ablations(const runs::TrainingTask& names);

// Learning rates for three widths, with and without muP. (Chapter 13.)
void compare_widths(const runs::TrainingTask& names);

// Fits a scaling law to the losses of six models, and predicts that of a seventh. (Chapter 13.)
void extrapolate_scaling_law(runs::TrainingTask task, const std::string& text);

// Small models that are trained on random crops, with a first token, and with learned sinks,
// and evaluated with windows. (Chapter 17.)
void compare_attention_sinks(const std::vector<Id>& tokens, std::size_t vocab_size,
                             std::size_t num_steps, std::size_t num_seeds);

// The loss by position after fine-tuning on longer sequences, for each extension of RoPE, and
// the mean loss where the context begins anew after that of the model. (Chapter 17.) Throws
// ValueError if seq_len exceeds `factor` times the context of the model.
struct LongerContexts {
    std::size_t factor = 8, seq_len = 1024, num_steps = 200, num_seeds = 3;
};
void compare_longer_contexts(const Model& model, const std::vector<Id>& tokens,
                             const LongerContexts& runs);

// Small models that find a value in a text, at several depths and lengths, for each extension
// of RoPE and with windows. (Chapter 17.)
void compare_passkey_retrieval(std::size_t num_steps, std::size_t num_seeds);

// MoE models and dense models on the same text, with several seeds. With a folder, saves one of
// them. (Chapter 18.)
void compare_experts(const std::vector<Id>& tokens, std::size_t vocab_size,
                     std::size_t num_steps, std::size_t num_seeds,
                     const std::string& save_folder);

// Attention with caches of different sizes, with several seeds, at equal widths and at equal
// parameters. (Chapter 19.)
void compare_latent_attention(const std::vector<Id>& tokens, std::size_t vocab_size,
                              std::size_t num_steps, std::size_t num_seeds);

// Linear attention and its updates, softmax attention and hybrids: the values of many keys, and
// the same text. (Chapter 20.)
void compare_recall(std::size_t num_steps, std::size_t num_seeds);
void compare_linear_attention(const std::vector<Id>& tokens, std::size_t vocab_size,
                              std::size_t num_steps, std::size_t num_seeds);

// Trains a module for multi-token prediction, which belongs to the target. With a folder, saves
// it. (Chapter 22.)
void train_mtp_module(const Model& target, const std::vector<Id>& tokens, std::size_t num_steps,
                      std::uint32_t seed, const std::string& save_folder);

// Draws the losses of docs/is_my_run_normal.md. Trains nothing. (Chapters 13 and 14.)
void plot_normal_runs();

}  // namespace llm
