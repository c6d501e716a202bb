// Model files of llama2.c.
#pragma once

#include <string>

#include "chapters/09_full_model/model.hpp"

namespace llm::models {

// Loads a model.bin of llama2.c, version 0. Its q_proj and k_proj use interleaved RoPE and are
// converted to split halves. Throws FileError. Source: karpathy/llama2.c, run.c,
// memory_map_weights.
Model load_llama2c(const std::string& path);

}  // namespace llm::models
