// Chapter 11: the sampling parameters on a command line.
#pragma once

#include "chapters/11_generation/sampling.hpp"
#include "common/system/options.hpp"

namespace llm {

// Adds --temperature, --top-k, --top-p, --min-p and --repetition-penalty.
void add_sampling_options(Options& options, SamplingConfig& sampling);

// Throws ShapeError for a --temperature between 0 and 0.01: the logits could overflow.
void check_temperature(const SamplingConfig& sampling);

}  // namespace llm
