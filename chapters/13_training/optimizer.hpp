// Chapter 13, file 4 of 10: gradient clipping and AdamW.
#pragma once

#include <vector>

#include "chapters/09_full_model/parameters.hpp"

namespace llm {

// These functions take results of named_parameters(): that of the model, and that of a second
// Model, which contains the gradients (chapter 12).

// The L2 norm of all gradients, concatenated into one vector.
double grad_norm(const std::vector<Parameter>& gradients);

// Gradient clipping: multiplies all gradients by max_grad_norm / (norm + 1e-6) if that factor
// is less than 1. Returns the norm before clipping. Source: Pascanu et al., 2013;
// torch.nn.utils.clip_grad_norm_.
double clip_grad_norm(const std::vector<Parameter>& gradients, double max_grad_norm);
// The same with a norm that is known. Source: torch.nn.utils.clip_grads_with_norm_.
void clip_grads_with_norm(const std::vector<Parameter>& gradients, double max_grad_norm,
                          double norm);

// True for parameters with two or more axes. Norm weights and biases have one axis and are
// excluded: a norm weight is initialized to 1, and decay would move it toward 0.
bool has_weight_decay(const Parameter& parameter);

// Adam with decoupled weight decay. Source: Kingma and Ba, 2015, algorithm 1; Loshchilov and
// Hutter, 2019, algorithm 2; torch.optim.AdamW.
struct AdamW {
    Real beta1 = Real(0.9), beta2 = Real(0.95), eps = Real(1e-8), weight_decay = Real(0.1);
    std::size_t step_count = 0;
    std::vector<std::vector<Real>> exp_avg;     // moving averages of the gradients
    std::vector<std::vector<Real>> exp_avg_sq;  // and of their squares

    // Updates all parameters. The first call also calls reset. Throws ValueError unless
    // parameters and gradients have the same names and shapes, equal to those of the previous
    // steps.
    void step(const std::vector<Parameter>& parameters, const std::vector<Parameter>& gradients,
              Real learning_rate);

    // Sets both moving averages and step_count to 0.
    void reset(const std::vector<Parameter>& parameters);
};

}  // namespace llm
