// Chapter 15, steps of the program: the roofline, and products of matrices.
#pragma once

#include "chapters/09_full_model/model.hpp"
#include "chapters/15_fast/demo/timing.hpp"

namespace llm {

void show_roofline(Timing& timing);
void matmul_variants(const Timing& timing, Generator& generator);
void forward_variants(const Timing& timing, const Model& model,
                      const std::vector<Id>& ids);  // T

}  // namespace llm
