// Chapter 24: a small model and one step of its training, for the steps of the demo.
#pragma once

#include "chapters/24_parallel/data_parallel.hpp"

namespace llm {

// A model of 2 layers that has letters as tokens, and one step: 5 sequences of 8 tokens.
struct SmallRun {
    Model model;
    TrainingArguments args;
    std::vector<Id> tokens;

    Batch batch() const { return sample_batches(args, 0, tokens)[0].batch; }
};
SmallRun small_run(std::uint32_t seed);

// "the_cat.", of row `row`.
std::string letters(const IdMatrix& ids, std::size_t row);

// "< 0.00001", or "more".
std::string small_difference(double difference);
// The largest difference between the parameters of two models, or gradients.
double largest_difference(Model a, Model b);

}  // namespace llm
