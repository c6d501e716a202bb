// Constrained decoding: grammars as masks over tokens, and a tool call.
#pragma once

namespace llm {

void allowed_by_state();
void cut_character();
void masked_probabilities();
void constrained_model();
void tool_call();

}  // namespace llm
