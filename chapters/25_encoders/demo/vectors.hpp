// Chapter 25: one vector for a text, padding, and batches without it.
#pragma once

#include "chapters/25_encoders/demo/names.hpp"

namespace llm {

void mean_with_padding(const ModernBertModel& encoder);
void rows_without_padding(const ModernBertModel& encoder, const Names& names);
// The time of both kinds of batches, for texts of 16 to 512 tokens.
void measure_unpadded();

// Trains the encoder so that a name with a typing error has a vector like that of the name.
// Returns it.
ModernBertModel train_for_search(const ModernBertModel& encoder, const Names& names,
                                 std::size_t num_steps, std::uint32_t seed);

// The name with two adjacent letters in the other order, one letter replaced, or one left out.
std::string misspell(const std::string& name, Generator& generator);

}  // namespace llm
