#include <csignal>
#include <limits>

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/apps/train/ranks_strategy.hpp"
#include "chapters/apps/train/training_folder.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "common/files/json_file.hpp"
#include "common/output/terminal.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "tests/support/training.hpp"

using namespace llm;
using namespace llm::runs;

namespace {

constexpr std::array stages = {ZeroStage::none, ZeroStage::optimizer_states,
                               ZeroStage::gradients, ZeroStage::parameters};

TrainingTask small_task() {
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
    std::vector<std::size_t> train(std::size_t num_ranks, ZeroStage stage) {
        std::vector<std::size_t> steps(num_ranks);
        set_print_options({.quiet = true});
        run_ranks(num_ranks, [&](Communicator& ranks) {
            steps[ranks.rank()] =
                train_rank(ranks.rank(), std::make_shared<RanksStrategy>(ranks, stage));
        });
        set_print_options({});
        folder.resume = true;
        return steps;
    }
    std::size_t train_in_one_process() {
        set_print_options({.quiet = true});
        return train_rank(0, std::make_shared<TrainingStrategy>());
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
            if (stop_at > 0 && state.global_step >= stop_at) std::raise(SIGUSR1);
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
void check_equal_runs(const RunOnRanks& run, const RunOnRanks& expected) {
    const std::vector<double> losses = run.losses(), expected_losses = expected.losses();
    REQUIRE(losses.size() == expected_losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
        CHECK(losses[i] == doctest::Approx(expected_losses[i]).epsilon(1e-4));
    const std::vector<Real> values = run.checkpoint(), expected_values = expected.checkpoint();
    for (std::size_t i = 0; i < values.size(); ++i)
        REQUIRE(std::abs(values[i] - expected_values[i]) < 1e-3);
}

TEST_CASE("four ranks leave the log and the checkpoint of one process, at each stage") {
    RunOnRanks one;
    CHECK(one.train_in_one_process() == 12);
    for (const ZeroStage stage : stages) {
        CAPTURE(int(stage));
        RunOnRanks four;
        CHECK(four.train(4, stage) == std::vector<std::size_t>(4, 12));
        check_equal_runs(four, one);
    }
}

TEST_CASE("a checkpoint of four ranks continues on other ranks, at another stage") {
    RunOnRanks one;
    one.train_in_one_process();
    for (const ZeroStage stage : stages)
        for (const std::size_t num_ranks : {1u, 2u, 3u}) {
            CAPTURE(int(stage));
            CAPTURE(num_ranks);
            RunOnRanks run;
            run.stop_at = 6;
            CHECK(run.train(4, stage) == std::vector<std::size_t>(4, 6));
            run.stop_at = 0;
            const ZeroStage other = stages[(std::size_t(stage) + num_ranks) % 4];
            CHECK(run.train(num_ranks, other) == std::vector<std::size_t>(num_ranks, 12));
            check_equal_runs(run, one);
        }
}

TEST_CASE("ranks whose clocks differ end after the same step") {
    // Otherwise they would wait for one another, which run_ranks reports.
    RunOnRanks run;
    std::array<double, 3> seconds{};
    run.deadline = [&](std::size_t rank) {
        return Deadline{300, 2, [&seconds, rank] {
                            return seconds[rank] += rank == 0 ? 1 : 17 * double(rank);
                        }};
    };
    const std::vector<std::size_t> steps = run.train(3, ZeroStage::none);
    CHECK(steps[0] > 10);
    CHECK(steps == std::vector<std::size_t>(3, steps[0]));
}

TEST_CASE("an evaluation on ranks gives the same bits as in one process") {
    const TrainingTask task = small_task();
    Generator generator(5);
    const Model model = make_model_for_training(task.config, generator);
    const double expected = evaluate_loss(model, task.dataset.train, task.args, 40);
    for (const std::size_t num_ranks : {1u, 2u, 3u, 7u})
        run_ranks(num_ranks, [&](Communicator& ranks) {
            RanksStrategy strategy(ranks, ZeroStage::none);
            REQUIRE(strategy.evaluate(model, task.dataset.train, task.args, 40) == expected);
        });
}

// Three ranks make a step, before which `prepare` changes the state or the tokens of rank 1.
std::string message_of_step(
    ZeroStage stage, const std::function<void(TrainerState&, std::vector<Id>&)>& prepare) {
    const TrainingTask task = small_task();
    Generator generator(5);
    const Model model = make_model_for_training(task.config, generator);
    try {
        run_ranks(3, [&](Communicator& ranks) {
            RanksStrategy strategy(ranks, stage);
            TrainerState state = make_trainer_state(model, task.args);
            std::vector<Id> tokens = task.dataset.train;
            strategy.start(state, task.args);
            if (ranks.rank() == 1) prepare(state, tokens);
            strategy.step(state, task.args, tokens);
        });
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("a rank whose loss is not finite is named, and so is one that fails") {
    const std::string advice = resume_advice;
    for (const ZeroStage stage : {ZeroStage::none, ZeroStage::optimizer_states}) {
        const auto damage = [](TrainerState& state, std::vector<Id>&) {
            state.model.norm.weight(0) = std::numeric_limits<Real>::quiet_NaN();
        };
        CHECK(message_of_step(stage, damage) ==
              "step 1: the loss is not finite on rank 1" + advice);
    }
    for (const ZeroStage stage : stages) {
        const auto shorten = [](TrainerState&, std::vector<Id>& tokens) { tokens.resize(3); };
        const std::string message = message_of_step(stage, shorten);
        CHECK(message.starts_with("rank 1: "));
        CHECK(message.ends_with(advice));
    }
}

TEST_CASE("a run that cannot be divided is rejected") {
    TrainingArguments args = small_arguments(12);
    check_ranks(args, 3, ZeroStage::parameters);
    CHECK_THROWS_WITH_AS(check_ranks(args, 4, ZeroStage::none),
                         "--ranks: 4 ranks for the 3 sequences of a step", ValueError);
    args.optimizer = OptimizerType::muon;
    check_ranks(args, 3, ZeroStage::none);
    CHECK_THROWS_WITH_AS(check_ranks(args, 3, ZeroStage::gradients),
                         "--zero excludes --optimizer muon, which needs whole matrices",
                         ValueError);
}

TEST_CASE("with Muon, ranks leave the checkpoint of one process, too") {
    const TrainingTask task = small_task();
    TrainingArguments args = task.args;
    args.optimizer = OptimizerType::muon;
    Generator generator(5);
    const Model model = make_model_for_training(task.config, generator);
    TrainerState one = make_trainer_state(model, args);
    TrainingStrategy single;
    single.start(one, args);
    for (int step = 0; step < 3; ++step) single.step(one, args, task.dataset.train);
    const TrainerState before = one;
    single.step(one, args, task.dataset.train);
    run_ranks(3, [&](Communicator& ranks) {
        RanksStrategy strategy(ranks, ZeroStage::none);
        TrainerState state = ranks.rank() == 0 ? before : make_trainer_state(model, args);
        strategy.start(state, args);
        strategy.step(state, args, task.dataset.train);
        CHECK_CLOSE(all_values(state.model), all_values(one.model), 1e-4);
    });
}

}  // namespace
