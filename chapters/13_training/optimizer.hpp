// Chapter 11, third part: from gradients to better weights.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

// A tensor that learns, as the optimizer sees it: numbers, and their gradients.
struct Parameter {
    std::string name;  // as in a checkpoint
    std::span<Real> numbers, gradients;
    bool decays;  // matrices do; norms and biases do not: their right size is not 0
};

// All of a model, in the order of a checkpoint. Both models must outlive the list. Throws
// ShapeError unless they have the same shapes.
std::vector<Parameter> parameters_of(Model& model, Model& gradient);

// A model of zeros with the same shapes, for its gradients.
Model zeros_like(const Model& model);

// All gradients become 0: backward functions add to what is there.
void clear_gradients(const std::vector<Parameter>& parameters);

// The length of all gradients as one vector; and the same made shorter, if they are longer than
// that. Returns the length before. Source: Pascanu et al., 2013;
// torch.nn.utils.clip_grad_norm_.
double gradient_norm(const std::vector<Parameter>& parameters);
double clip_gradients(const std::vector<Parameter>& parameters, double longest);

// Adam with decoupled weight decay. Source: Kingma and Ba, 2015, algorithm 1; Loshchilov and
// Hutter, 2019, algorithm 2; torch.optim.AdamW.
struct AdamW {
    Real beta1 = Real(0.9), beta2 = Real(0.95), eps = Real(1e-8), weight_decay = Real(0.1);
    std::size_t steps = 0;                             // taken so far
    std::vector<std::vector<Real>> mean, mean_square;  // of each parameter's gradients

    // Sets both means and steps to 0; the first step does so if nobody has.
    void begin(const std::vector<Parameter>& parameters);

    // Throws ShapeError if the parameters are not those of the steps before.
    void step(const std::vector<Parameter>& parameters, Real learning_rate);
};

// Linearly up to the highest, then down half a cosine to the lowest. Step counts from 0.
// Throws ShapeError unless warm-up fits into all steps. Source: Loshchilov and Hutter, 2017
// ("SGDR"), with the warm-up of Vaswani et al., 2017.
struct Schedule {
    Real highest = Real(1e-3), lowest = Real(1e-4);
    std::size_t warmup_steps = 100, steps = 1000;

    Real at(std::size_t step) const;
};

}  // namespace llm
