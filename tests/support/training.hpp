// For tests of training: token sequences that can be learned, and small runs on them.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/files.hpp"

namespace llm {

inline Model fixture_model() {
    return models::load_model(fixture_path("09_full_model/mistral"));
}

// The values of all parameters in one vector.
inline Vector all_values(const std::vector<Parameter>& parameters) {
    std::vector<Real> values;
    for (const Parameter& parameter : parameters)
        values.insert(values.end(), parameter.values.begin(), parameter.values.end());
    Vector all(std::array{values.size()});
    std::copy(values.begin(), values.end(), all.begin());
    return all;
}
inline Vector all_values(Model& model) { return all_values(named_parameters(model)); }

// Tokens of a vocabulary of 11: i² mod 11.
inline std::vector<Id> square_tokens(std::size_t count) {
    std::vector<Id> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Id>(i * i % 11);
    return tokens;
}

inline TrainingArguments small_arguments(std::size_t max_steps) {
    TrainingArguments args;
    args.batch_size = 3;
    args.seq_len = 5;
    args.lr_schedule = {Real(0.01), Real(0.001), 2, max_steps};
    return args;
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
