// Chapter 26: a decoder that attends to an encoder.
#pragma once

#include <cstdint>

namespace llm {

void relative_positions();
void cross_attention_by_hand();
void cost_of_cross_attention(std::uint32_t seed);

}  // namespace llm
