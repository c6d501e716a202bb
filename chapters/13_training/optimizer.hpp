// Chapter 13: from gradients to new parameters.
#pragma once

#include <vector>

#include "chapters/09_full_model/parameters.hpp"

namespace llm {

// All functions take lists of named_parameters(): those of the model, and those of the second
// model that holds the gradients (chapter 12).

// The norm of all gradients together, as one vector.
double grad_norm(const std::vector<Parameter>& gradients);

// Gradient clipping: if their norm is above max_grad_norm, scales the gradients so that it
// equals it. Returns the norm before. Source: Pascanu et al., 2013;
// torch.nn.utils.clip_grad_norm_.
double clip_grad_norm(const std::vector<Parameter>& gradients, double max_grad_norm);

// Weight decay applies to matrices only. Norm weights and biases have one axis: a norm weight
// starts at 1, and there is no reason to move it to 0.
bool has_weight_decay(const Parameter& parameter);

// Adam with decoupled weight decay. Source: Kingma and Ba, 2015, algorithm 1; Loshchilov and
// Hutter, 2019, algorithm 2; torch.optim.AdamW.
struct AdamW {
    Real beta1 = Real(0.9), beta2 = Real(0.95), eps = Real(1e-8), weight_decay = Real(0.1);
    std::size_t step_count = 0;
    std::vector<std::vector<Real>> exp_avg;     // per parameter: mean of its gradients
    std::vector<std::vector<Real>> exp_avg_sq;  // per parameter: mean of their squares

    // Updates all parameters. The first step calls reset. Throws ShapeError unless parameters
    // and gradients have the same names and shapes, the same as in the steps before.
    void step(const std::vector<Parameter>& parameters, const std::vector<Parameter>& gradients,
              Real learning_rate);

    // Sets both means and step_count to 0.
    void reset(const std::vector<Parameter>& parameters);
};

}  // namespace llm
