// Chapter 13, file 2 of 10: micro-batches and a training loop for any model. (trainer.hpp has
// the loop for long runs, with evaluation.)
#pragma once

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {

// Adds the gradients of all parts of a batch to those of the first one, and multiplies the sums
// by `scale`. Parameters are processed in parallel. The order of the additions is fixed, so
// that runs are reproducible bit for bit.
template <class AnyModel>
void sum_gradients(std::vector<AnyModel>& gradients, Real scale) {
    std::vector<std::vector<Parameter>> lists;
    for (AnyModel& gradient : gradients) lists.push_back(named_parameters(gradient));
    parallel_for(lists[0].size(), [&](std::size_t p) {
        const std::span<Real> sum = lists[0][p].values;
        for (std::size_t i = 1; i < lists.size(); ++i)
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += lists[i][p].values[k];
        for (Real& g : sum) g *= scale;
    });
}

// Gradient accumulation. Micro-batch i is loss_and_gradient(i, gradients[i]), which returns its
// loss and adds its gradient to one that is 0; micro-batches are processed in parallel. Returns
// the sum of the losses; gradients[0] becomes the sum of the gradients, times `scale`. Throws
// Interrupted after Ctrl-C.
template <class AnyModel>
using BatchGradient = std::function<double(std::size_t i, AnyModel& gradient)>;
template <class AnyModel>
double sum_losses_and_gradients(std::vector<AnyModel>& gradients,
                                const BatchGradient<AnyModel>& loss_and_gradient,
                                Real scale = 1) {
    std::vector<double> losses(gradients.size());
    parallel_for(gradients.size(), [&](std::size_t i) {
        InterruptHandler::throw_if_interrupted();
        zero_grad(gradients[i]);
        losses[i] = loss_and_gradient(i, gradients[i]);
    });
    sum_gradients(gradients, scale);
    return std::accumulate(losses.begin(), losses.end(), 0.0);
}
// The same with the mean of the losses and the mean of the gradients.
template <class AnyModel>
double mean_loss_and_gradient(std::vector<AnyModel>& gradients,
                              const BatchGradient<AnyModel>& loss_and_gradient) {
    const std::size_t count = gradients.size();
    return sum_losses_and_gradients(gradients, loss_and_gradient,
                                    1 / static_cast<Real>(count)) /
           static_cast<double>(count);
}

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
        const std::vector<Parameter> gradients = named_parameters(gradient);
        clip_grad_norm(gradients, args.max_grad_norm);
        optimizer.step(named_parameters(trained), gradients, learning_rate);
    };
    return run_training_loop(model, args.lr_schedule, loss_and_gradient, update);
}

}  // namespace llm
