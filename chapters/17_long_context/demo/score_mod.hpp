// Chapter 17, steps of the program: soft caps, a sink in the softmax, temperature.
#pragma once

namespace llm {

void soft_caps();
void softmax_with_a_sink();
void temperature_of_queries();

}  // namespace llm
