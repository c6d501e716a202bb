// Chapter 24, demo: a step of training on several ranks, right and wrong.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm {

void share_of_each_rank(std::size_t num_ranks, std::uint32_t seed);
void one_step_on_ranks(std::uint32_t seed);
void stages_of_zero(std::size_t num_ranks, std::uint32_t seed);
void wrong_mean_of_means(std::size_t num_ranks, std::uint32_t seed);
void wrong_clipping(std::size_t num_ranks, std::uint32_t seed);
void wrong_tied_embedding(std::size_t num_ranks, std::uint32_t seed);

}  // namespace llm
