#include "chapters/13_training/ablations/experiments.hpp"
#include "chapters/13_training/walks.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

using Named = std::vector<std::pair<std::string, Trial>>;

std::vector<Summary> run_named(const Named& named, const Corpus& corpus) {
    std::vector<Trial> trials;
    for (const auto& [name, trial] : named) trials.push_back(trial);
    const std::size_t seeds = 3, count = trials.size() * seeds;
    const double start = seconds_so_far();
    const std::vector<Summary> summaries =
        run_trials(trials, corpus, seeds, [&](std::size_t done) {
            const double left =
                (seconds_so_far() - start) / double(done) * double(count - done);
            show_progress("run " + to_text(done) + " of " + to_text(count) + ", " +
                          minutes_and_seconds(left) + " left");
        });
    show_progress("");
    return summaries;
}

Trial small_trial(const Task& task, std::size_t num_layers, Real rate) {
    Trial trial{task.config, {}, task.plan};
    trial.config.hidden_size = 32;
    trial.config.intermediate_size = 88;
    trial.config.num_hidden_layers = num_layers;
    trial.plan.batch_size = 16;
    trial.plan.seq_len = 16;
    trial.plan.schedule = {rate, rate / 10, 30, 300};
    return trial;
}

// Four arrangements at two depths, three rates, with and without warm-up.
void arrangements_in_training(const Task& task) {
    const auto arrangements = trained_arrangements();
    const std::vector<Real> rates = {Real(0.001), Real(0.004), Real(0.016)};
    for (const std::size_t depth : {2u, 12u}) {
        step("Where the norm stands, " + to_text(depth) + " layers: held-out loss");
        Named named;
        for (const std::size_t warmup : {30u, 0u})
            for (const auto& [name, arrangement] : arrangements)
                for (const Real rate : rates) {
                    Trial trial = small_trial(task, depth, rate);
                    trial.choices.arrangement = arrangement;
                    trial.plan.schedule.warmup_steps = warmup;
                    named.emplace_back(name + (warmup > 0 ? "" : ", no warm-up"), trial);
                }
        const std::vector<Summary> summaries = run_named(named, task.corpus);
        std::vector<TableRow> rows;
        std::vector<Panel> panels;
        for (std::size_t i = 0; i < named.size(); ++i) {
            if (i % rates.size() == 0) rows.push_back({named[i].first});
            rows.back().push_back(fixed(summaries[i].validation_loss, 3) + " ±" +
                                  fixed(summaries[i].spread / 2, 3));
        }
        show_table({"arrangement", "rate 0.001", "0.004", "0.016"}, rows);
        for (std::size_t r = 0; r < rates.size(); ++r) {
            LinePlot panel{
                "Rate " + brief(double(rates[r])) + ", warm-up", "step", "training loss", {}};
            for (std::size_t a = 0; a < arrangements.size(); ++a)
                panel.lines.push_back(
                    smooth(arrangements[a].first, summaries[a * rates.size() + r].losses));
            panels.push_back(panel);
        }
        plot("arrangements_" + to_text(depth), panels);
    }
}

// One choice of the chapters at a time, the sizes equal where they can be.
void other_choices(const Task& task) {
    step("The other choices, 4 layers at rate 0.004");
    const Trial usual = small_trial(task, 4, Real(0.004));
    Named named = {{"as Llama: SwiGLU, RMSNorm, RoPE, GQA", usual}};
    const auto but = [&](const std::string& name, const std::function<void(Trial&)>& change) {
        named.emplace_back(name, usual);
        change(named.back().second);
    };
    but("ReLU and two matrices, as many parameters",
        [](Trial& trial) { trial.choices.plain_mlp = true; });
    but("LayerNorm", [](Trial& trial) { trial.choices.layer_norm = true; });
    but("no RoPE", [](Trial& trial) { trial.choices.no_rope = true; });
    but("MHA: a key head for each query head",
        [](Trial& trial) { trial.config.num_key_value_heads = 4; });
    but("MQA: one key head", [](Trial& trial) { trial.config.num_key_value_heads = 1; });
    but("no weight decay", [](Trial& trial) { trial.plan.weight_decay = 0; });
    but("constant rate",
        [](Trial& trial) { trial.plan.schedule.lowest = trial.plan.schedule.highest; });
    but("constant rate, no weight decay", [](Trial& trial) {
        trial.plan.schedule.lowest = trial.plan.schedule.highest;
        trial.plan.weight_decay = 0;
    });
    const std::vector<Summary> summaries = run_named(named, task.corpus);
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < named.size(); ++i)
        rows.push_back({named[i].first, fixed(summaries[i].training_loss, 3),
                        fixed(summaries[i].validation_loss, 3) + " ±" +
                            fixed(summaries[i].spread / 2, 3)});
    show_table({"model", "training loss", "held out"}, rows);
}

}  // namespace

void experiments_walk(const Task& task) {
    arrangements_in_training(task);
    other_choices(task);
}

}  // namespace llm
