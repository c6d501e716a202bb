// Chapter 28, exercises. Write your answers into exercise.cpp; ./learn exercise 28 checks them.
#pragma once

#include <string>

#include "chapters/28_model_parallel/context_parallel.hpp"
#include "chapters/28_model_parallel/pipeline.hpp"

namespace exercise {

using namespace llm;

IdVector predicted_pipeline();  // (3)
IdVector predicted_slices();    // (5)

// The mean loss of N positions, on each rank, and its gradient with respect to the logits of
// this rank's part of the vocabulary.
struct LossOfPart {
    double loss;
    Matrix logits_gradient;  // (N, V/n)
};
LossOfPart cross_entropy_of_part(Communicator& ranks,
                                 const Matrix& logits,       // (N, V/n)
                                 const Vector& log_sum_exp,  // (N), over the whole vocabulary
                                 const IdVector& targets,    // (N), 0 to V - 1
                                 Part vocabulary);           // of V

// One forward, one backward from an empty file, in three steps: m micro-batches on p stages.
std::size_t num_warmup_micro_batches(std::size_t num_micro_batches, std::size_t num_stages,
                                     std::size_t stage);
// "F0 F1 B0 F2 B1 B2": forward and backward passes of micro-batches 0, 1, ..., in the order in
// which this stage runs them.
std::string schedule_of_stage(std::size_t num_micro_batches, std::size_t num_stages,
                              std::size_t stage);
// A row for each stage, and in it a character for each tick: 0, 1, ... for the forward pass of
// micro-batch 0, 1, ..., a, b, ... for its backward pass, a dot if the stage is idle.
std::vector<std::string> pipeline_timeline(std::size_t num_micro_batches,  // at most 10
                                           std::size_t num_stages);        // -> (p)

// Ring attention's merge from an empty file, in four steps. What T queries have of the keys
// that they have met so far; nothing is divided yet.
struct AttentionState {
    Vector max;     // (T), the largest score; -inf for a query that has seen no key
    Vector sum;     // (T), the sum of e^(score - max)
    Matrix output;  // (T, D), the sum of e^(score - max) times the key's value
};
struct KeyBlock {
    Matrix keys, values;  // (S, D)
    IdVector positions;   // (S), in the whole sequence
};
// A query sees the keys whose position is not larger than its own. Scores are divided by √D.
AttentionState attend_to_keys(const Matrix& queries,      // (T, D)
                              const IdVector& positions,  // (T), in the whole sequence
                              const KeyBlock& block);
// The softmax times values, and the log-sum-exp of the scores; 0 and -inf for a query that has
// seen no key.
BlockAttention finish(const AttentionState& state);
// The state after the keys of both.
AttentionState merge_states(const AttentionState& a, const AttentionState& b);
BlockAttention attend_to_blocks(const Matrix& queries,      // (T, D)
                                const IdVector& positions,  // (T)
                                const std::vector<KeyBlock>& blocks);

}  // namespace exercise
