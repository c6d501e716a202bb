// Chapter 13, exercises. Write your answers into exercise.cpp; ./learn exercise 13 checks them.
#pragma once

#include "chapters/13_training/trainer.hpp"

namespace exercise {

using namespace llm;

// Adam without weight decay, for one tensor. Both moving averages start at 0.
struct Adam {
    Vector exp_avg, exp_avg_sq;  // (n) each
    Real beta1 = Real(0.9), beta2 = Real(0.95), eps = Real(1e-8);
    std::size_t step_count = 0;
};
void adam_step(Adam& adam, Vector& parameter, const Vector& gradient,  // (n), (n)
               Real learning_rate);

// Returns the sequences of T tokens that start at the given positions, and their targets.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,  // B
               std::size_t seq_len);                                                   // T

// Returns whether weight decay applies to the parameter with this name and number of axes.
bool has_weight_decay(const std::string& name, std::size_t num_axes);

// Loss and gradient of a batch, both averaged over its tokens.
struct BatchGradient {
    double loss;
    Vector gradient;  // (n): all parameters of a model in one vector
    std::size_t num_tokens;
};
BatchGradient accumulate_gradients(const std::vector<BatchGradient>& batches);

// A learning-rate schedule with three phases: warm-up, stable, decay. Steps count from 0.
struct WSDSchedule {
    Real learning_rate;
    std::size_t warmup_steps, decay_steps, max_steps;
};
Real wsd_learning_rate(const WSDSchedule& schedule, std::size_t step);

}  // namespace exercise
