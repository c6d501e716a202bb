// Chapter 18, file 6 of 7: initial weights, training and evaluation of an MoE decoder.
#pragma once

#include "chapters/13_training/trainer.hpp"
#include "chapters/18_experts/moe_decoder.hpp"

namespace llm {

// Initial weights as those of make_model_for_training (chapter 13): standard deviation 0.02,
// that of o_proj and down_proj divided by √(2L). Throws ValueError as it does, and as route
// does.
MoeDecoder make_moe_decoder(const Config& config, const ExpertSizes& sizes,
                            const Routing& routing, Generator& generator);

// The course of a run.
struct MoeRun {
    std::vector<Real> losses;  // cross-entropy of each step
    std::vector<std::vector<Vector>>
        load;            // (E) of each layer with a mixture of experts, of each step
    double dropped = 0;  // the fraction of all choices
};
// Trains with AdamW, one random batch per step. Throws Interrupted after Ctrl-C.
MoeRun train_moe(MoeDecoder& decoder, const TrainingArguments& args,
                 const BalanceArguments& balance, const std::vector<Id>& tokens,
                 Generator& generator);

// The mean cross-entropy of the batches.
double mean_cross_entropy(const MoeDecoder& decoder, const std::vector<Batch>& batches);

}  // namespace llm
