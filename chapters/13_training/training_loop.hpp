// Chapter 13, file 7 of 10: a training loop for any model. (trainer.hpp has the one for long
// runs, with gradient accumulation and evaluation.)
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "common/system/interrupt.hpp"

namespace llm {

// Draws a batch, adds its gradient to one that is 0, and returns its loss.
template <class AnyModel>
using LossAndGradient = std::function<double(AnyModel& gradient)>;
// Updates the parameters of a model.
template <class AnyModel>
using UpdateParameters =
    std::function<void(AnyModel& model, AnyModel& gradient, Real learning_rate)>;

// Trains anything that has named_parameters. Returns the loss of each step, up to the first
// that is not finite. Throws Interrupted after Ctrl-C.
template <class AnyModel>
std::vector<Real> run_training_loop(AnyModel& model, const LRSchedule& lr_schedule,
                                    const LossAndGradient<AnyModel>& loss_and_gradient,
                                    const UpdateParameters<AnyModel>& update) {
    std::vector<Real> losses;
    AnyModel gradient = zeros_like(model);
    for (std::size_t step = 0; step < lr_schedule.max_steps; ++step) {
        InterruptHandler::throw_if_interrupted();
        zero_grad(gradient);
        const double loss = loss_and_gradient(gradient);
        if (!std::isfinite(loss)) break;
        update(model, gradient, learning_rate_at(lr_schedule, step));
        losses.push_back(static_cast<Real>(loss));
    }
    return losses;
}

// The same with AdamW and gradient clipping.
template <class AnyModel>
std::vector<Real> run_training_loop(AnyModel& model, const TrainingArguments& args,
                                    const LossAndGradient<AnyModel>& loss_and_gradient) {
    AdamW optimizer;
    optimizer.weight_decay = args.weight_decay;
    const UpdateParameters<AnyModel> update = [&](AnyModel& trained, AnyModel& gradient,
                                                  Real learning_rate) {
        clip_grad_norm(named_parameters(gradient), args.max_grad_norm);
        optimizer.step(named_parameters(trained), named_parameters(gradient), learning_rate);
    };
    return run_training_loop(model, args.lr_schedule, loss_and_gradient, update);
}

}  // namespace llm
