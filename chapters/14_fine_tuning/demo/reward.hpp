// Chapter 14, steps of the program: GRPO by hand.
#pragma once

namespace llm {

void grpo_demo();

}  // namespace llm
