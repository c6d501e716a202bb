// Chapter 09, program: published models, compared by their configurations.
#pragma once

namespace llm {

// The steps of the program that need no weights: parameter counts, FLOPs and cache per token,
// and ratios of sizes.
void show_published_parameters();
void show_costs();
void show_design_choices();

}  // namespace llm
