// For tests of training runs on ranks: a run of twelve steps, and what it leaves.
#pragma once

#include <doctest/doctest.h>

#include <csignal>

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/apps/train/ranks_strategy.hpp"
#include "chapters/apps/train/training_folder.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "common/files/json_file.hpp"
#include "common/output/terminal.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "tests/support/training.hpp"

namespace llm::runs {

inline TrainingTask small_task() {
    TrainingTask task;
    task.config = tiny_config(2);
    task.args = small_arguments(12);
    task.args.gradient_accumulation_steps = 2;
    std::string text;
    for (const Id id : square_tokens(300)) text += to_text(id) + " ";
    tokenize_dataset(task, text, 0);
    return task;
}

// A training run of twelve steps. All ranks but rank 0 begin with other parameters, which they
// must not use, and without a text.
struct RunOnRanks {
    Scratch scratch;
    RunFolder folder{(scratch.folder / "run").string()};
    std::size_t stop_at = 0;  // with Ctrl-C
    std::function<std::optional<Deadline>(std::size_t rank)> deadline = [](std::size_t) {
        return std::nullopt;
    };

    // Returns the completed steps of each rank.
    using MakeStrategy = std::function<std::shared_ptr<TrainingStrategy>(Communicator&)>;
    std::vector<std::size_t> train(std::size_t num_ranks, const MakeStrategy& make_strategy) {
        std::vector<std::size_t> steps(num_ranks);
        set_print_options({.quiet = true});
        run_ranks(num_ranks, [&](Communicator& ranks) {
            steps[ranks.rank()] = train_rank(ranks.rank(), make_strategy(ranks));
        });
        set_print_options({});
        folder.resume = true;
        return steps;
    }
    std::vector<std::size_t> train(std::size_t num_ranks, ZeroStage stage) {
        return train(num_ranks, [stage](Communicator& ranks) {
            return std::make_shared<RanksStrategy>(ranks, stage);
        });
    }
    std::size_t train_in_one_process() {
        set_print_options({.quiet = true});
        const std::size_t steps = train_rank(0, std::make_shared<TrainingStrategy>());
        set_print_options({});
        folder.resume = true;
        return steps;
    }

    std::size_t train_rank(std::size_t rank,
                           const std::shared_ptr<TrainingStrategy>& strategy) {
        TrainingTask task = small_task();
        RunFolder own = strategy->is_main() ? folder : RunFolder{};
        if (strategy->is_main()) open_training_folder(own, task);
        if (!strategy->is_main()) task.dataset = {};
        strategy->share(task);
        Generator generator(std::uint32_t(77 + rank));
        const Model model = make_model_for_training(task.config, generator);
        TrainerState state = strategy->is_main() ? start_or_resume(task, model, own)
                                                 : make_trainer_state(model, task.args);
        const auto sample = [&](const Model&) {
            if (stop_at > 0 && state.global_step >= stop_at)
                std::raise(strategy->num_ranks() > 1 ? SIGUSR1 : SIGINT);
            return std::string();
        };
        train_and_evaluate(state, task, own, sample, deadline(rank), strategy);
        return state.global_step;
    }

    // The lines of the log: losses and validation losses.
    std::vector<double> losses() const {
        std::vector<double> all;
        for (const std::string& line : complete_lines(folder.path + "/log.jsonl")) {
            const JsonFile record("log", line);
            all.push_back(record.number(record.has("loss") ? "loss" : "validation_loss"));
        }
        return all;
    }
    // What the checkpoint has, parameters and moving averages.
    std::vector<Real> checkpoint() const {
        const TrainingTask task = small_task();
        Generator generator(1);
        TrainerState state =
            make_trainer_state(make_model_for_training(task.config, generator), task.args);
        load_checkpoint(state, task.args, task.dataset.train, folder.checkpoint_file());
        const Vector parameters = all_values(state.model);
        std::vector<Real> all(parameters.begin(), parameters.end());
        for (const auto* averages : {&state.optimizer.exp_avg, &state.optimizer.exp_avg_sq})
            for (const std::vector<Real>& values : *averages)
                all.insert(all.end(), values.begin(), values.end());
        return all;
    }
};

// Parameters depend on the order of additions, up to the scale of the learning rate where a
// gradient is near 0.
inline void check_equal_runs(const RunOnRanks& run, const RunOnRanks& expected) {
    const std::vector<double> losses = run.losses(), expected_losses = expected.losses();
    REQUIRE(losses.size() == expected_losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
        CHECK(losses[i] == doctest::Approx(expected_losses[i]).epsilon(1e-4));
    const std::vector<Real> values = run.checkpoint(), expected_values = expected.checkpoint();
    for (std::size_t i = 0; i < values.size(); ++i)
        REQUIRE(std::abs(values[i] - expected_values[i]) < 1e-3);
}

}  // namespace llm::runs
