// Chapter 14, file 7 of 13: sampling groups of answers for GRPO.
#pragma once

#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"

namespace llm {

// The answers to a number of prompts: group_size consecutive completions belong to one prompt.
struct Rollouts {
    std::vector<Completion> completions;  // B
    std::vector<bool> finished;           // B: the stop token was sampled
    ResponseBatch batch;                  // of the completions
    Matrix old_log_probs;                 // (B, T): of the model that sampled them
};

// Samples with temperature 1 and no other processing of the logits, so that old_log_probs are
// those of the sampling distribution. The stop token is part of the response, because it is
// trained, too. Answers are sampled in parallel, each with a generator of its own: the number
// of cores does not change the result. Throws ValueError if there are no prompts, group_size or
// max_new_tokens is 0, or as generate() does. Source: Shao et al., 2024, algorithm 1, line 7.
Rollouts sample_rollouts(const Model& model, const std::vector<std::vector<Id>>& prompts,
                         std::size_t group_size, std::size_t max_new_tokens, Id stop_token_id,
                         Generator& generator);

}  // namespace llm
