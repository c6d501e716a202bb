// Chapter 23: constrained decoding: grammars as masks over tokens, and a tool call.
#pragma once

#include <string>

#include "common/numbers/random.hpp"

namespace llm {

// The mask before each token of a text, and after the last one. Throws ValueError if the schema
// cannot be enforced, or if the text is not the beginning of one that satisfies it.
void allowed_by_schema(const std::string& schema, const std::string& text);

void allowed_by_state();
void cut_character();
void masked_probabilities(Generator& generator);
void constrained_model();
void tool_call();

}  // namespace llm
