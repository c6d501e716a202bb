// Chapter 11, steps of the program: prefill and decode with a KV cache.
#pragma once

#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

// The tensors of prefill and decode, a wrong mask, and the FLOPs per token with
// and without a KV cache; for --measure, the time per token on this machine.
void show_cache(const Model& model, const std::vector<Id>& ids);
void measure_cache(const Model& model);

}  // namespace llm
