// Chapter 19, file 4 of 5: what attention layers cost: cached numbers, parameters and FLOPs.
#pragma once

#include <cstdint>

#include "chapters/01_masking/config.hpp"
#include "chapters/19_latent_attention/latent_attention.hpp"

namespace llm {

// Of one layer.
struct AttentionCost {
    std::uint64_t cached_numbers = 0;  // per token
    std::uint64_t parameters = 0;      // of the projections, without norms and biases
    std::uint64_t prefill_flops = 0;   // of S tokens at once, each counted with all S keys, by
                                       // the order that needs fewer
    std::uint64_t decode_flops = 0;    // of the token after S - 1 cached ones, likewise
};
// Multi-head, grouped-query or multi-query attention: Hkv says which. Two FLOPs per weight and
// token; scores and weighted sums take four per feature of a query head and key that it sees.
AttentionCost attention_cost(const Config& config, std::uint64_t seq_len);  // S
AttentionCost attention_cost(const LatentSizes& sizes, std::uint64_t seq_len);

}  // namespace llm
