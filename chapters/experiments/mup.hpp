// Initial weights and learning rates that depend on the width of a model.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/data.hpp"
#include "chapters/13_training/trainer.hpp"

namespace llm {

// standard: make_model_for_training, and one learning rate for all parameters. mup: the maximal
// update parametrization, in which the change of every activation in a step is independent of
// the width.
enum class Parametrization { standard, mup };

// By which factors mup multiplies the standard initial weight and the learning rate of a
// parameter, for a model that is m = C / C_base times as wide as the base model:
//   hidden matrices   1/√m, 1/m
//   q_proj            1/√m · 1/√(D/D_base), 1/m · 1/√(D/D_base): scores divided by D, not √D
//   final norm        1/m, 1/m: logits divided by m
//   all others        1, 1
// With Adam, a multiplier in the forward pass is equal to one of the initial weight and of the
// learning rate, so that the model of chapter 09 stays as it is. Source: "Tensor Programs V"
// (Yang et al., 2022), table 8 and appendix B.1.
struct MupFactors {
    Real initial_weight, learning_rate;
};
MupFactors mup_factors(const Parameter& parameter, const Config& config, const Config& base);

// make_model_for_training(), with the factors of mup.
Model make_mup_model(const Config& config, const Config& base, Generator& generator);

// A training run without weight decay and without clipping. Each step has one batch.
struct MupRun {
    Config config, base;
    Parametrization parametrization;
    TrainingArguments args;
};
// Trains, and passes the loss of each step to on_step. Stops at a loss that is not finite.
// Throws Interrupted after Ctrl-C.
Model train_mup(const MupRun& run, const std::vector<Id>& tokens,
                const std::function<void(double loss)>& on_step = {});
// The mean training loss of the last tenth of the steps, or infinity if one is not finite.
double run_mup(const MupRun& run, const std::vector<Id>& tokens);

// The coordinate check: the root mean square of the change of the hidden states before the
// final norm, and of the logits, after a few steps with this learning rate. If all is right,
// they do not depend on the width. Source: the repository microsoft/mup.
struct CoordinateCheck {
    double hidden_states, logits;
};
CoordinateCheck coordinate_check(const MupRun& run, const Batch& batch, std::size_t num_steps);

}  // namespace llm
