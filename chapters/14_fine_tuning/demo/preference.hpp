// Chapter 14, steps of the program: DPO by hand.
#pragma once

namespace llm {

void dpo_demo();

}  // namespace llm
