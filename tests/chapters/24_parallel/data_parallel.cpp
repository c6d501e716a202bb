#include "chapters/24_parallel/data_parallel.hpp"

#include <limits>
#include <set>

#include "tests/support/check.hpp"
#include "tests/support/parallel_helpers.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("the gradient on 1 to 4 ranks equals that of one process, in each stage") {
    check_gradients(1e-5);
}

TEST_CASE("batches_of_rank: each sequence once, in order, and shares that add up to 1") {
    const Task task = make_task(true, 2, 4);
    const std::vector<StepBatch> batches = sample_batches(task.args, 3, task.tokens);
    for (const std::size_t num_ranks : {1, 2, 3, 4, 5, 8}) {
        std::vector<Id> ids, targets;
        double share = 0;
        for (std::size_t rank = 0; rank < num_ranks; ++rank) {
            const std::vector<RankBatch> own = batches_of_rank(batches, num_ranks, rank);
            CHECK(own.size() == num_batches_of_rank(task.args, num_ranks));
            for (const RankBatch& batch : own) {
                share += double(batch.share);
                const Batch& of_rank = batch.step_batch.batch;
                CHECK(of_rank.input_ids.shape(0) <= 2);
                if (batch.share == 0) continue;
                ids.insert(ids.end(), of_rank.input_ids.begin(), of_rank.input_ids.end());
                targets.insert(targets.end(), of_rank.targets.begin(), of_rank.targets.end());
            }
        }
        std::vector<Id> all_ids, all_targets;
        for (const StepBatch& batch : batches) {
            all_ids.insert(all_ids.end(), batch.batch.input_ids.begin(),
                           batch.batch.input_ids.end());
            all_targets.insert(all_targets.end(), batch.batch.targets.begin(),
                               batch.batch.targets.end());
        }
        CHECK(ids == all_ids);
        CHECK(targets == all_targets);
        CHECK(share == doctest::Approx(1));
    }
    CHECK_THROWS_WITH_AS(batches_of_rank(batches, 9, 0),
                         "training: 9 ranks for the 8 sequences of a step", ValueError);
}

TEST_CASE("dropout: a rank's batches keep their masks, and ranks that divide a batch differ") {
    const Task whole = make_task(true, 2, 4), divided = make_task(true, 4, 1);
    const std::vector<StepBatch> batches = sample_batches(whole.args, 0, whole.tokens);
    for (std::size_t rank = 0; rank < 4; ++rank)
        CHECK(batches_of_rank(batches, 4, rank)[0].step_batch.dropout_seed ==
              batches[rank].dropout_seed);
    const std::vector<StepBatch> one = sample_batches(divided.args, 0, divided.tokens);
    std::set<std::uint32_t> seeds;
    for (std::size_t rank = 0; rank < 4; ++rank)
        seeds.insert(batches_of_rank(one, 4, rank)[0].step_batch.dropout_seed);
    CHECK(seeds.size() == 4);
}

TEST_CASE(
    "a share of the loss that is not finite is an error on all ranks, which names its rank") {
    run_ranks(4, [](Communicator& ranks) {
        CHECK(sum_of_shares(ranks, double(ranks.rank()) / 4) == 1.5);
        const bool is_finite = ranks.rank() == 0 || ranks.rank() == 2;
        CHECK_THROWS_WITH_AS(
            sum_of_shares(ranks, is_finite ? 1 : std::numeric_limits<double>::quiet_NaN()),
            "the loss is not finite on rank 1 3", std::runtime_error);
    });
    Task task = make_task(true, 4, 1);
    task.model.norm.weight(0) = std::numeric_limits<Real>::infinity();
    for (const ZeroStage stage : all_stages)
        CHECK_THROWS_WITH_AS(
            run_ranks(2, [&](Communicator& ranks) { on_ranks(ranks, task, stage); }),
            "the loss is not finite on rank 0 1", std::runtime_error);
}

TEST_CASE("the same run twice, and on each rank, gives the same bits, in each stage") {
    const Task task = make_task(true, 5, 1);
    for (const ZeroStage stage : all_stages) {
        std::vector<std::vector<Real>> results(6);
        for (const std::size_t run : {0, 1})
            run_ranks(3, [&](Communicator& ranks) {
                Model model = on_ranks(ranks, task, stage, 3).model;
                results[3 * run + ranks.rank()] = flatten(named_parameters(model));
            });
        for (const std::vector<Real>& result : results) CHECK(result == results[0]);
    }
}

TEST_CASE("five steps on 4 ranks lead to the parameters of one process, in each stage") {
    const Task task = make_task(false, 3, 2);
    const Result expected = one_process(task, 5);
    for (const ZeroStage stage : all_stages)
        run_ranks(4, [&](Communicator& ranks) {
            const Result result = on_ranks(ranks, task, stage, 5);
            CHECK(result.metrics.learning_rate == expected.metrics.learning_rate);
            check_equal(result.model, expected.model, 1e-3);
        });
}

TEST_CASE("overlapped_gradient: the gradient of the whole batch, of each bucket once") {
    const Task task = make_task(true, 5, 1);
    const Result expected = one_process(task);
    run_ranks(3, [&](Communicator& ranks) {
        const RankBatch batch = batches_of_rank(sample_batches(task.args, 0, task.tokens),
                                                ranks.size(), ranks.rank())[0];
        Model gradient = zeros_like(task.model);
        const double share = overlapped_gradient(ranks, task.model, task.args, batch, gradient);
        CHECK(sum_over_ranks(ranks, share) == doctest::Approx(expected.metrics.loss));
        check_equal(gradient, expected.gradient, 1e-5);
    });
}

TEST_CASE("clipping: all ranks scale by the norm of the whole gradient, in each stage") {
    Task task = make_task(true, 4, 1);
    task.args.max_grad_norm = 0.1;
    const Result expected = one_process(task);
    CHECK(expected.metrics.grad_norm > 0.2);
    for (const ZeroStage stage : all_stages)
        run_ranks(2, [&](Communicator& ranks) {
            const Result result = on_ranks(ranks, task, stage);
            CHECK(result.metrics.grad_norm == doctest::Approx(expected.metrics.grad_norm));
            check_equal(result.gradient, expected.gradient, 1e-5);
        });
}

TEST_CASE("with Muon, data parallelism works and a sharded optimizer is an error") {
    Task task = make_task(true, 4, 1);
    task.args.optimizer = OptimizerType::muon;
    const Result expected = one_process(task, 2);
    run_ranks(2, [&](Communicator& ranks) {
        check_equal(on_ranks(ranks, task, ZeroStage::none, 2).model, expected.model, 1e-4);
        CHECK_THROWS_WITH_AS(make_sharded_optimizer(ranks, task.model, task.args),
                             "a sharded optimizer: Muon needs whole matrices, so it has no "
                             "shards",
                             ValueError);
    });
}

}  // namespace
