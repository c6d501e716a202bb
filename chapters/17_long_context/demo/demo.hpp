// The demos of chapter 17's program.
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "common/output/show.hpp"

namespace llm {

// pattern.cpp: masks, receptive field, the rolling cache, and the bytes of caches.
void masks_of_patterns(Generator& generator);
void receptive_field_of_layers();
void rolling_cache_by_hand();
void wrong_ring_buffer();
void bytes_of_caches();
void time_by_length(const Config& config);

// score_mod.cpp: soft caps, a sink in the softmax, temperature.
void soft_caps();
void softmax_with_a_sink();
void temperature_of_queries();

// extension.cpp: RoPE beyond the context of training.
void frequencies_of_pairs(const Config& config, std::size_t factor);
void loss_beyond_the_context(const Model& model, const std::vector<Id>& tokens,
                             std::size_t factor, std::size_t num_sequences);

}  // namespace llm
