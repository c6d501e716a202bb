// Chapter 28: the model divided among ranks: layers, stages, tokens, experts.
#pragma once

#include <cstdint>

namespace llm {

void two_features_by_hand();
void slices_of_a_rank(std::uint32_t seed);
void one_step_of_tensor_parallelism(std::uint32_t seed);
void wrong_tensor_parallelism(std::uint32_t seed);
void pipeline_schedules();
void one_step_of_a_pipeline(std::uint32_t seed);
void zigzag_chunks();
void one_step_of_ring_attention(std::uint32_t seed);
void rows_of_an_all_to_all(std::uint32_t seed);
void one_step_of_expert_parallelism(std::uint32_t seed);

}  // namespace llm
