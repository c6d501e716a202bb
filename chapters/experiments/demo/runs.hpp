// What the experiments share: runs on all cores, small models, means over seeds.
#pragma once

#include <cmath>
#include <functional>
#include <span>

#include "chapters/13_training/training_loop.hpp"
#include "chapters/apps/train/training_run.hpp"

namespace llm {

// Runs fn(i) for i = 0 to count - 1 on all cores, and shows how many are done. Throws
// Interrupted after Ctrl-C.
void run_all(std::size_t count, const std::function<void(std::size_t)>& fn);

// Shows how many runs are done, and how long the others will take.
void show_runs_left(double start_seconds, std::size_t num_done, std::size_t count);

// Two layers of this width, with four heads and an MLP of three times the width.
Config config_of_width(const Config& task, std::size_t width, std::size_t seq_len);

// Four layers of width 64 with four heads.
Config small_config(std::size_t vocab_size, std::size_t max_position_embeddings);

// One batch of 8 sequences per step, and a learning rate of 0.004.
TrainingArguments small_run_arguments(std::size_t seq_len, std::size_t num_steps,
                                      std::uint32_t seed);

// The initial weights of chapter 13, for any model; convolutions keep theirs.
template <class AnyModel>
void initialize(AnyModel& model, Generator& generator) {
    const Real depth = 1 / std::sqrt(2 * Real(model.layers.size()));
    for (const Parameter& parameter : named_parameters(model)) {
        const std::string& name = parameter.name;
        if (parameter.shape.size() < 2 || name.ends_with("conv1d.weight")) continue;
        generator.fill_normal(parameter.values);
        const bool writes = name.ends_with("o_proj.weight") ||
                            name.ends_with("out_proj.weight") ||
                            name.ends_with("down_proj.weight");
        for (Real& value : parameter.values) value *= Real(0.02) * (writes ? depth : 1);
    }
}

// Trains a model on a text from these initial weights. Returns the validation loss.
template <class AnyModel>
double train_and_evaluate(AnyModel model, const Dataset& dataset, const TrainingArguments& args,
                          Generator& generator) {
    initialize(model, generator);
    run_training_loop<AnyModel>(model, args, [&](AnyModel& gradient) {
        const Batch batch =
            random_batch(dataset.train, args.batch_size, args.seq_len, generator);
        return forward_backward(model, batch.input_ids, batch.targets, gradient);
    });
    return mean_loss(evaluation_batches(dataset.validation, 16, args.seq_len, 16),
                     [&](const Batch& batch) {
                         return evaluate_loss(model, batch.input_ids, batch.targets);
                     });
}

double mean_of(const std::vector<double>& values);

// The mean of a member over runs with several seeds, and half the distance between the
// extremes.
std::string mean_and_spread(const std::vector<double>& values, int decimals = 3);
template <class Run>
std::string mean_and_spread(std::span<const Run> runs, double Run::*member, double factor = 1,
                            int decimals = 3) {
    std::vector<double> values;
    for (const Run& run : runs) values.push_back(factor * run.*member);
    return mean_and_spread(values, decimals);
}

}  // namespace llm
