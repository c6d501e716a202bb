#include "chapters/apps/train/ranks_strategy.hpp"

#include <limits>

#include "tests/support/run_on_ranks.hpp"

using namespace llm;
using namespace llm::runs;

namespace {

constexpr std::array stages = {ZeroStage::none, ZeroStage::optimizer_states,
                               ZeroStage::gradients, ZeroStage::parameters};

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
