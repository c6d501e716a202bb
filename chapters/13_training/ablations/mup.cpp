#include "chapters/13_training/ablations/mup.hpp"

#include <cmath>
#include <map>
#include <numeric>

#include "common/numbers/statistics.hpp"
#include "common/system/interrupt.hpp"

namespace llm {

MupFactors mup_factors(const Parameter& parameter, const Config& config, const Config& base) {
    const Real m = Real(config.hidden_size) / Real(base.hidden_size);
    if (parameter.name == "model.norm.weight") return {1 / m, 1 / m};
    if (!is_hidden_matrix(parameter)) return {1, 1};
    MupFactors factors{1 / std::sqrt(m), 1 / m};
    if (parameter.name.ends_with("q_proj.weight")) {
        const Real score = 1 / std::sqrt(Real(config.head_dim) / Real(base.head_dim));
        factors.initial_weight *= score;
        factors.learning_rate *= score;
    }
    return factors;
}

Model init_mup_model(const Config& config, const Config& base, Generator& generator) {
    Model model = init_model(config, generator);
    for (const Parameter& parameter : named_parameters(model)) {
        const Real factor = mup_factors(parameter, config, base).initial_weight;
        for (Real& value : parameter.values) value *= factor;
    }
    return model;
}

namespace {

Real rate_factor(const MupRun& run, const Parameter& parameter) {
    if (run.parametrization == Parametrization::standard) return 1;
    return mup_factors(parameter, run.config, run.base).learning_rate;
}

Model init_model_of(const MupRun& run, Generator& generator) {
    if (run.parametrization == Parametrization::standard)
        return init_model(run.config, generator);
    return init_mup_model(run.config, run.base, generator);
}

// One AdamW for each factor of the learning rate, as with PyTorch's parameter groups.
using Optimizers = std::map<Real, AdamW>;

// One step. Returns the loss.
double mup_step(const MupRun& run, Model& model, Optimizers& optimizers, const Batch& batch,
                Real learning_rate) {
    Model gradient = zeros_like(model);
    const double loss = forward_backward(model, batch.input_ids, batch.targets, gradient);
    std::map<Real, std::vector<Parameter>> parameters, gradients;
    for (const Parameter& parameter : named_parameters(model))
        parameters[rate_factor(run, parameter)].push_back(parameter);
    for (const Parameter& parameter : named_parameters(gradient))
        gradients[rate_factor(run, parameter)].push_back(parameter);
    for (const auto& [factor, group] : parameters) {
        AdamW& optimizer = optimizers[factor];
        optimizer.weight_decay = 0;
        optimizer.step(group, gradients.at(factor), learning_rate * factor);
    }
    return loss;
}

}  // namespace

Model train_mup(const MupRun& run, const std::vector<Id>& tokens,
                const std::function<void(double)>& on_step) {
    Generator generator(run.args.seed);
    Model model = init_model_of(run, generator);
    Optimizers optimizers;
    for (std::size_t step = 0; step < run.args.lr_schedule.max_steps; ++step) {
        InterruptHandler::throw_if_interrupted();
        const Batch batch =
            random_batch(tokens, run.args.batch_size, run.args.seq_len, generator);
        const double loss = mup_step(run, model, optimizers, batch,
                                     learning_rate_at(run.args.lr_schedule, step));
        if (on_step) on_step(loss);
        if (!std::isfinite(loss)) break;
    }
    return model;
}

double run_mup(const MupRun& run, const std::vector<Id>& tokens) {
    std::vector<double> losses;
    train_mup(run, tokens, [&](double loss) { losses.push_back(loss); });
    if (!std::isfinite(losses.back())) return double(infinity);
    const auto count = std::max<std::ptrdiff_t>(1, std::ptrdiff_t(losses.size() / 10));
    return std::accumulate(losses.end() - count, losses.end(), 0.0) / double(count);
}

CoordinateCheck coordinate_check(const MupRun& run, const Batch& batch, std::size_t num_steps) {
    Generator generator(run.args.seed);
    Model model = init_model_of(run, generator);
    ForwardOptions options;
    options.output_hidden_states = true;
    const ModelOutput before = model.forward(batch.input_ids, options);
    Optimizers optimizers;
    for (std::size_t step = 0; step < num_steps; ++step)
        mup_step(run, model, optimizers, batch, run.args.lr_schedule.learning_rate);
    const ModelOutput after = model.forward(batch.input_ids, options);
    const Tensor3 hidden_change = after.hidden_states.back() - before.hidden_states.back();
    const Tensor3 logit_change = after.logits - before.logits;
    return {root_mean_square(hidden_change), root_mean_square(logit_change)};
}

}  // namespace llm
