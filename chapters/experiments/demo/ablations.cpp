// Norm placements at three learning rates, and single changes of a baseline.
#include "chapters/experiments/ablations.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/timer.hpp"

namespace llm {
using namespace runs;

namespace {

using NamedAblations = std::vector<std::pair<std::string, Ablation>>;

std::vector<AblationSummary> run_named(const NamedAblations& named, const Dataset& dataset) {
    std::vector<Ablation> ablations;
    for (const auto& [name, ablation] : named) ablations.push_back(ablation);
    const std::size_t num_seeds = 3, num_runs = ablations.size() * num_seeds;
    const double start = elapsed_seconds();
    const InterruptHandler interrupt_handler;
    const std::vector<AblationSummary> summaries =
        run_ablations(ablations, dataset, num_seeds,
                      [&](std::size_t num_done) { show_runs_left(start, num_done, num_runs); });
    show_progress("");
    return summaries;
}

Ablation small_ablation(const TrainingTask& task, std::size_t num_layers, Real learning_rate) {
    Ablation ablation{task.config, {}, task.args};
    ablation.config.hidden_size = 32;
    ablation.config.intermediate_size = 88;
    ablation.config.num_hidden_layers = num_layers;
    ablation.args.batch_size = 16;
    ablation.args.seq_len = 16;
    ablation.args.lr_schedule = {learning_rate, learning_rate / 10, 30, 300};
    return ablation;
}

std::string loss_and_range(const AblationSummary& summary) {
    return fixed(summary.validation_loss, 3) + " ±" + fixed(summary.range / 2, 3);
}

const std::vector<Real> learning_rates = {Real(0.001), Real(0.004), Real(0.016)};

// Training loss against steps with warm-up: one panel for each learning rate.
void plot_norm_placements(std::size_t num_layers,
                          const std::vector<AblationSummary>& summaries) {
    const auto norm_placements = named_norm_placements();
    std::vector<Panel> panels;
    for (std::size_t r = 0; r < learning_rates.size(); ++r) {
        LinePlot panel{"Learning rate " + brief(double(learning_rates[r])) + ", warm-up",
                       "step",
                       "training loss",
                       {}};
        for (std::size_t a = 0; a < norm_placements.size(); ++a)
            panel.lines.push_back(smooth(norm_placements[a].first,
                                         summaries[a * learning_rates.size() + r].losses));
        panels.push_back(panel);
    }
    plot("norm_placements_" + to_text(num_layers), panels);
}

// The norm placements at three learning rates, with and without warm-up.
void compare_norm_placements(const TrainingTask& task, std::size_t num_layers) {
    step("Norm placements, " + to_text(num_layers) + " layers: validation loss");
    NamedAblations named;
    for (const std::size_t warmup_steps : {30u, 0u})
        for (const auto& [name, norm_placement] : named_norm_placements())
            for (const Real learning_rate : learning_rates) {
                Ablation ablation = small_ablation(task, num_layers, learning_rate);
                ablation.ablation.norm_placement = norm_placement;
                ablation.args.lr_schedule.warmup_steps = warmup_steps;
                named.emplace_back(name + (warmup_steps > 0 ? "" : ", no warm-up"), ablation);
            }
    const std::vector<AblationSummary> summaries = run_named(named, task.dataset);
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < named.size(); ++i) {
        if (i % learning_rates.size() == 0) rows.push_back({named[i].first});
        rows.back().push_back(loss_and_range(summaries[i]));
    }
    show_table({"norm placement", "lr 0.001", "lr 0.004", "lr 0.016"}, rows);
    plot_norm_placements(num_layers, summaries);
}

// The baseline, and copies of it with one change each (two in the last).
NamedAblations single_changes(const TrainingTask& task) {
    const Ablation baseline = small_ablation(task, 4, Real(0.004));
    NamedAblations named = {{"baseline: SwiGLU, RMSNorm, RoPE, GQA", baseline}};
    const auto change = [&](const std::string& name,
                            const std::function<void(Ablation&)>& edit) {
        named.emplace_back(name, baseline);
        edit(named.back().second);
    };
    const auto constant_rate = [](Ablation& run) {
        run.args.lr_schedule.min_learning_rate = run.args.lr_schedule.learning_rate;
    };
    change("ReLU MLP, as many parameters", [](Ablation& run) { run.ablation.relu_mlp = true; });
    change("LayerNorm", [](Ablation& run) { run.ablation.layer_norm = true; });
    change("no RoPE", [](Ablation& run) { run.ablation.use_rope = false; });
    change("MHA: 4 key/value heads", [](Ablation& run) { run.config.num_key_value_heads = 4; });
    change("MQA: 1 key/value head", [](Ablation& run) { run.config.num_key_value_heads = 1; });
    change("no weight decay", [](Ablation& run) { run.args.weight_decay = 0; });
    change("constant learning rate", constant_rate);
    change("constant learning rate, no weight decay", [&](Ablation& run) {
        constant_rate(run);
        run.args.weight_decay = 0;
    });
    return named;
}

void compare_single_changes(const TrainingTask& task) {
    step("Single changes, 4 layers, learning rate 0.004");
    const NamedAblations named = single_changes(task);
    const std::vector<AblationSummary> summaries = run_named(named, task.dataset);
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < named.size(); ++i)
        rows.push_back(
            {named[i].first, fixed(summaries[i].train_loss, 3), loss_and_range(summaries[i])});
    show_table({"model", "training loss", "validation loss"}, rows);
}

}  // namespace

void compare_ablations(const TrainingTask& task) {
    for (const std::size_t num_layers : {2u, 12u}) compare_norm_placements(task, num_layers);
    compare_single_changes(task);
}

}  // namespace llm
