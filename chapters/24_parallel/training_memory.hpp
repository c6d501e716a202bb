// Chapter 24, file 6 of 6: what each rank keeps in memory.
#pragma once

#include "chapters/24_parallel/sharded_model.hpp"

namespace llm {

// Bytes for each parameter. Training in float32 needs 4, 4 and 8: AdamW has two moving
// averages. In mixed precision they are 2, 2 and 12: bfloat16 parameters and gradients, float32
// moving averages and a float32 copy of the parameters. Source: Rajbhandari et al., 2020,
// section 3.1.
struct BytesPerParameter {
    std::uint64_t parameters = 4, gradients = 4, optimizer_states = 8;
};

// Bytes of one rank, without activations.
struct TrainingMemory {
    std::uint64_t parameters, gradients, optimizer_states;  // what it keeps
    std::uint64_t gathered = 0;  // what it has of the others' shards, while a step runs

    std::uint64_t kept() const { return parameters + gradients + optimizer_states; }
    std::uint64_t peak() const { return kept() + gathered; }
};

// Rank 0 of n, whose shards are the longest ones.
TrainingMemory training_memory(const Config& config, ZeroStage stage, std::size_t num_ranks,
                               const BytesPerParameter& bytes = {});

}  // namespace llm
