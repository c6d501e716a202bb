// Chapter 19, steps of the program: what attention layers of published models cost.
#pragma once

#include <string>

namespace llm {

void cached_numbers();
void parameters_and_flops();
void orders_by_length();
void cost_of_config(const std::string& file);

}  // namespace llm
