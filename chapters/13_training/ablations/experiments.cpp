#include "chapters/13_training/ablations/experiments.hpp"

#include <algorithm>
#include <cmath>

#include "common/system/parallel.hpp"

namespace llm {
namespace {

double held_out_loss(const Variant& variant, const std::vector<Id>& tokens, const Plan& plan) {
    return mean_over_pieces(tokens, plan, 8, [&](const Batch& batch) {
        return loss_of(variant, batch.inputs, batch.targets);
    });
}

}  // namespace

std::vector<double> gradients_at_start(const ModelConfig& config, Arrangement arrangement,
                                       const Batch& batch, std::size_t seeds) {
    Matrix lengths = xt::zeros<Real>({seeds, config.num_hidden_layers});
    in_parallel(seeds, [&](std::size_t seed) {
        Generator generator(static_cast<std::uint32_t>(seed + 1));
        Variant variant = make_variant(config, {arrangement}, 0, generator);
        Variant gradient = zeros_like(variant);
        loss_and_gradients(variant, batch.inputs, batch.targets, gradient);
        std::size_t layer = 0;
        for (const Parameter& parameter : parameters_of(variant, gradient))
            if (parameter.name.ends_with("down_proj"))
                lengths(seed, layer++) = static_cast<Real>(gradient_norm({parameter}));
    });
    const Vector means = xt::mean<Real>(lengths, {0});  // (L)
    return {means.begin(), means.end()};
}

Outcome run_trial(const Trial& trial, const Corpus& corpus) {
    const Plan& plan = trial.plan;
    Generator generator(plan.seed);
    Variant variant = make_variant(trial.config, trial.choices, Real(0.02), generator);
    Variant gradient = zeros_like(variant);
    const std::vector<Parameter> parameters = parameters_of(variant, gradient);
    AdamW optimizer;
    optimizer.weight_decay = plan.weight_decay;
    Outcome outcome{infinity, infinity, {}};
    for (std::size_t step = 0; step < plan.schedule.steps; ++step) {
        const Batch batch =
            random_batch(corpus.training, plan.batch_size, plan.seq_len, generator);
        clear_gradients(parameters);
        const double loss = loss_and_gradients(variant, batch.inputs, batch.targets, gradient);
        if (!std::isfinite(loss)) return outcome;
        clip_gradients(parameters, plan.longest_gradient);
        optimizer.step(parameters, plan.schedule.at(step));
        outcome.losses.push_back(static_cast<Real>(loss));
    }
    const double held_out = held_out_loss(variant, corpus.validation, plan);
    if (!std::isfinite(held_out)) return outcome;  // the last step has broken it
    outcome.validation_loss = held_out;
    const std::size_t last = std::max<std::size_t>(1, plan.schedule.steps / 10);
    outcome.training_loss = 0;
    for (std::size_t i = plan.schedule.steps - last; i < plan.schedule.steps; ++i)
        outcome.training_loss += double(outcome.losses[i]) / double(last);
    return outcome;
}

std::vector<Summary> run_trials(const std::vector<Trial>& trials, const Corpus& corpus,
                                std::size_t seeds,
                                const std::function<void(std::size_t)>& after_run) {
    std::vector<Outcome> outcomes(trials.size() * seeds);
    const auto run = [&](std::size_t i) {
        Trial trial = trials[i / seeds];
        trial.plan.seed = static_cast<std::uint32_t>(1 + i % seeds);
        outcomes[i] = run_trial(trial, corpus);
    };
    in_parallel(outcomes.size(), run, after_run);

    std::vector<Summary> summaries;
    for (std::size_t t = 0; t < trials.size(); ++t) {
        Summary summary{0, 0, 0, outcomes[t * seeds].losses};
        double lowest = infinity, highest = 0;
        for (std::size_t s = 0; s < seeds; ++s) {
            const Outcome& outcome = outcomes[t * seeds + s];
            summary.training_loss += outcome.training_loss / double(seeds);
            summary.validation_loss += outcome.validation_loss / double(seeds);
            lowest = std::min(lowest, outcome.validation_loss);
            highest = std::max(highest, outcome.validation_loss);
        }
        summary.spread = std::isfinite(highest) ? highest - lowest : double(infinity);
        summaries.push_back(std::move(summary));
    }
    return summaries;
}

}  // namespace llm
