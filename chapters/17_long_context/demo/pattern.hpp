// Chapter 17, steps of the program: masks, the receptive field, rolling caches and their bytes.
#pragma once

#include "chapters/01_masking/config.hpp"
#include "common/numbers/random.hpp"

namespace llm {

void masks_of_patterns(Generator& generator);
void receptive_field_of_layers();
void rolling_cache_by_hand();
void wrong_ring_buffer();
void bytes_of_caches();
void time_by_length(const Config& config);

}  // namespace llm
