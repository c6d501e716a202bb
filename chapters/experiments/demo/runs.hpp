// What the experiments share: runs on all cores, small models, means over seeds.
#pragma once

#include <functional>
#include <span>

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
