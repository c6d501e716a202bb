#include "chapters/experiments/mup.hpp"

#include <cmath>
#include <map>
#include <numeric>

#include "chapters/13_training/training_loop.hpp"
#include "common/numbers/statistics.hpp"

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

Model make_mup_model(const Config& config, const Config& base, Generator& generator) {
    Model model = make_model_for_training(config, generator);
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
        return make_model_for_training(run.config, generator);
    return make_mup_model(run.config, run.base, generator);
}

// Trains with one AdamW for each factor of the learning rate, as with PyTorch's parameter
// groups.
void train(const MupRun& run, const LRSchedule& lr_schedule, Model& model,
           const LossAndGradient<Model>& loss_and_gradient) {
    std::map<Real, AdamW> optimizers;
    const auto update = [&](Model& trained, Model& gradient, Real learning_rate) {
        std::map<Real, std::vector<Parameter>> parameters, gradients;
        for (const Parameter& parameter : named_parameters(trained))
            parameters[rate_factor(run, parameter)].push_back(parameter);
        for (const Parameter& parameter : named_parameters(gradient))
            gradients[rate_factor(run, parameter)].push_back(parameter);
        for (const auto& [factor, group] : parameters) {
            AdamW& optimizer = optimizers[factor];
            optimizer.weight_decay = 0;
            optimizer.step(group, gradients.at(factor), learning_rate * factor);
        }
    };
    run_training_loop<Model>(model, lr_schedule, loss_and_gradient, update);
}

}  // namespace

Model train_mup(const MupRun& run, const std::vector<Id>& tokens,
                const std::function<void(double)>& on_step) {
    Generator generator(run.args.seed);
    Model model = init_model_of(run, generator);
    train(run, run.args.lr_schedule, model, [&](Model& gradient) {
        const Batch batch =
            random_batch(tokens, run.args.batch_size, run.args.seq_len, generator);
        const double loss = forward_backward(model, batch.input_ids, batch.targets, gradient);
        if (on_step) on_step(loss);
        return loss;
    });
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
    const Real learning_rate = run.args.lr_schedule.learning_rate;
    train(run, {learning_rate, learning_rate, 0, num_steps}, model, [&](Model& gradient) {
        return forward_backward(model, batch.input_ids, batch.targets, gradient);
    });
    const ModelOutput after = model.forward(batch.input_ids, options);
    const Tensor3 hidden_change = after.hidden_states.back() - before.hidden_states.back();
    const Tensor3 logit_change = after.logits - before.logits;
    return {root_mean_square(hidden_change), root_mean_square(logit_change)};
}

}  // namespace llm
