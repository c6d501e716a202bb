// For tests of training: token sequences that can be learned, and small runs on them.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/files.hpp"
#include "tests/support/tiny_run.hpp"

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

inline TrainingArguments small_arguments(std::size_t max_steps) {
    TrainingArguments args;
    args.batch_size = 3;
    args.seq_len = 5;
    args.lr_schedule = {Real(0.01), Real(0.001), 2, max_steps};
    return args;
}

}  // namespace llm
