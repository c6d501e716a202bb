#include "chapters/experiments/ablations.hpp"

#include <cmath>
#include <numeric>

#include "chapters/13_training/training_loop.hpp"
#include "common/system/parallel.hpp"

namespace llm {

std::vector<std::pair<std::string, NormPlacement>> named_norm_placements() {
    return {{"pre-norm", NormPlacement::pre_norm},
            {"post-norm", NormPlacement::post_norm},
            {"res-post-norm", NormPlacement::res_post_norm},
            {"sandwich", NormPlacement::sandwich},
            {"parallel", NormPlacement::parallel}};
}

std::vector<double> initial_gradient_norms(const Config& config, NormPlacement norm_placement,
                                           const Batch& batch, std::size_t num_seeds) {
    Matrix norms = xt::zeros<Real>({num_seeds, config.num_hidden_layers});
    parallel_for(num_seeds, [&](std::size_t s) {
        Generator generator(static_cast<std::uint32_t>(s + 1));
        const AblationModel model = make_ablation_model(
            config, {.norm_placement = norm_placement}, WeightInit::xavier_normal, generator);
        AblationModel gradient = zeros_like(model);
        forward_backward(model, batch.input_ids, batch.targets, gradient);
        std::size_t layer = 0;
        for (const Parameter& parameter : named_parameters(gradient))
            if (parameter.name.ends_with("down_proj.weight"))
                norms(s, layer++) = static_cast<Real>(grad_norm({parameter}));
    });
    const Vector sums = xt::sum<Real>(norms, {0});  // (L)
    const Vector means = sums / static_cast<Real>(num_seeds);
    return {means.begin(), means.end()};
}

namespace {

// Trains the model. Returns the loss of each step, up to the first that is not finite.
std::vector<Real> train_ablation(AblationModel& model, const TrainingArguments& args,
                                 const std::vector<Id>& tokens, Generator& generator) {
    return run_training_loop<AblationModel>(model, args, [&](AblationModel& gradient) {
        const Batch batch = random_batch(tokens, args.batch_size, args.seq_len, generator);
        return forward_backward(model, batch.input_ids, batch.targets, gradient);
    });
}

}  // namespace

AblationResult run_ablation(const Ablation& run, const Dataset& dataset) {
    const TrainingArguments& args = run.args;
    Generator generator(args.seed);
    AblationModel model =
        make_ablation_model(run.config, run.ablation, WeightInit::normal, generator);
    AblationResult result;
    result.losses = train_ablation(model, args, dataset.train, generator);
    if (result.losses.size() < args.lr_schedule.max_steps) return result;

    const auto loss = [&](const Batch& batch) {
        return evaluate_loss(model, batch.input_ids, batch.targets);
    };
    const double validation_loss = mean_loss(
        evaluation_batches(dataset.validation, args.batch_size, args.seq_len, 8), loss);
    if (!std::isfinite(validation_loss)) return result;  // the last step diverged
    result.validation_loss = validation_loss;
    const auto last = std::ptrdiff_t(std::max<std::size_t>(1, result.losses.size() / 10));
    result.train_loss =
        std::accumulate(result.losses.end() - last, result.losses.end(), 0.0) / double(last);
    return result;
}

namespace {

AblationSummary summarize(std::span<const AblationResult> results) {
    AblationSummary summary{0, 0, 0, results[0].losses};
    double lowest = infinity, highest = 0;
    for (const AblationResult& result : results) {
        summary.train_loss += result.train_loss / double(results.size());
        summary.validation_loss += result.validation_loss / double(results.size());
        lowest = std::min(lowest, result.validation_loss);
        highest = std::max(highest, result.validation_loss);
    }
    summary.range = std::isfinite(highest) ? highest - lowest : double(infinity);
    return summary;
}

}  // namespace

std::vector<AblationSummary> run_ablations(const std::vector<Ablation>& ablations,
                                           const Dataset& dataset, std::size_t num_seeds,
                                           const std::function<void(std::size_t)>& after_run) {
    std::vector<AblationResult> results(ablations.size() * num_seeds);
    const auto run = [&](std::size_t i) {
        Ablation ablation = ablations[i / num_seeds];
        ablation.args.seed = static_cast<std::uint32_t>(1 + i % num_seeds);
        results[i] = run_ablation(ablation, dataset);
    };
    parallel_for(results.size(), run, after_run);

    std::vector<AblationSummary> summaries;
    for (std::size_t a = 0; a < ablations.size(); ++a)
        summaries.push_back(summarize({results.data() + a * num_seeds, num_seeds}));
    return summaries;
}

}  // namespace llm
