// A config and tokens for tests of training, also of those in double.
#pragma once

#include "chapters/09_full_model/model.hpp"

namespace llm {

// Tokens of a vocabulary of 11: i² mod 11.
inline std::vector<Id> square_tokens(std::size_t count) {
    std::vector<Id> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Id>(i * i % 11);
    return tokens;
}

// A config with a vocabulary of 11.
inline Config tiny_config(std::size_t num_layers) {
    Config config = mini_llm_config();
    config.hidden_size = 16;
    config.intermediate_size = 24;
    config.num_hidden_layers = num_layers;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.vocab_size = 11;
    return config;
}

}  // namespace llm
