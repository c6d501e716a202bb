// The sizes of small_config() in small_model.hpp as members of config.json.
#pragma once

#include <string>

namespace llm {

inline const std::string small_sizes =
    R"("hidden_size": 16, "intermediate_size": 20, "num_attention_heads": 4,
       "num_key_value_heads": 2, "vocab_size": 17)";

}  // namespace llm
