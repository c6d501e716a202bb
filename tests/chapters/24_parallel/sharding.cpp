#include "chapters/24_parallel/training_memory.hpp"

#include <numeric>

#include "tests/support/check.hpp"
#include "tests/support/parallel_helpers.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE(
    "flat_parameters: each parameter once, also a tied embedding, and those of a layer "
    "together") {
    for (const bool tied : {true, false}) {
        Model model = make_task(tied, 1, 1).model;
        const std::vector<FlatParameters> groups = flat_parameters(model);
        CHECK(groups.size() == 3);
        CHECK(groups[0].size() == (tied ? 2 : 3));
        std::size_t count = 0;
        for (const FlatParameters& group : groups) count += num_elements(group);
        CHECK(count == count_parameters(model).total());
        for (const Parameter& parameter : groups[2])
            CHECK(parameter.name.starts_with("model.layers.1."));

        // flatten and unflatten are inverse.
        const std::vector<Real> flat = flatten(groups[1]);
        std::vector<Real> counted(flat.size());
        std::iota(counted.begin(), counted.end(), Real(0));
        unflatten(counted, groups[1]);
        CHECK(flatten(groups[1]) == counted);
        CHECK(groups[1][0].values[1] == 1);
        CHECK_THROWS_WITH_AS(
            unflatten(std::span(counted).first(3), groups[1]),
            ("unflatten: 3 numbers for " + std::to_string(flat.size()) + " elements").c_str(),
            ValueError);
    }
}

TEST_CASE("shard_of: the shards are the parameters, cut where the parts end") {
    Model model = make_task(true, 1, 1).model;
    for (const FlatParameters& group : flat_parameters(model)) {
        const std::vector<Real> whole = flatten(group);
        for (const std::size_t num_ranks : {1, 2, 3, 7}) {
            std::vector<Real> together;
            for (std::size_t rank = 0; rank < num_ranks; ++rank) {
                const Part part = part_of(whole.size(), num_ranks, rank);
                const FlatParameters shard = shard_of(group, part);
                CHECK(num_elements(shard) == part.size);
                const std::vector<Real> values = flatten(shard);
                together.insert(together.end(), values.begin(), values.end());

                // A piece keeps the shape of its parameter, which decides about weight decay.
                for (const Parameter& piece : shard) {
                    const bool is_matrix =
                        !piece.name.ends_with("norm.weight") && !piece.name.ends_with("bias");
                    CHECK(has_weight_decay(piece) == is_matrix);
                }
                std::vector<Real> other(part.size);
                const FlatParameters moved = on_shard(shard, other);
                unflatten(values, moved);
                CHECK(other == values);
            }
            CHECK(together == whole);
        }
    }
    // Views: what is written to the shard is written to the model.
    const FlatParameters shard = shard_of(flat_parameters(model)[0], {17, 3});
    shard[0].values[0] = 1234;
    CHECK(model.embed_tokens(1, 1) == 1234);
}

TEST_CASE("the moving averages of the shards are those of one process") {
    const Task task = make_task(true, 4, 1);
    const Result expected = one_process(task, 3);
    run_ranks(3, [&](Communicator& ranks) {
        for (const ZeroStage stage : {ZeroStage::optimizer_states, ZeroStage::parameters}) {
            const Result result = on_ranks(ranks, task, stage, 3);
            std::vector<Real> shard;
            for (const std::vector<Real>& piece : result.exp_avg)
                shard.insert(shard.end(), piece.begin(), piece.end());
            Model gathered = task.model, whole = task.model;
            gather_shards(ranks, shard, gathered);
            const std::vector<Parameter> parameters = named_parameters(whole);
            for (std::size_t p = 0; p < parameters.size(); ++p)
                std::copy(expected.exp_avg[p].begin(), expected.exp_avg[p].end(),
                          parameters[p].values.begin());
            check_equal(gathered, whole, 1e-3);
        }
    });
}

TEST_CASE("a sharded model has the stages gradients and parameters") {
    const Task task = make_task(true, 1, 1);
    run_ranks(1, [&](Communicator& ranks) {
        for (const ZeroStage stage : {ZeroStage::none, ZeroStage::optimizer_states})
            CHECK_THROWS_WITH_AS(ShardedModel(ranks, task.model, stage),
                                 "a sharded model: the stages are gradients and parameters",
                                 ValueError);
    });
}

// A model of 2 layers: 11 · 16 embeddings + 16 of the final norm; 1,952 a layer.
TEST_CASE("training_memory: each stage divides one more of the three, by the number of ranks") {
    Model model = make_task(true, 1, 1).model;
    const std::uint64_t outside = 11 * 16 + 16, all = count_parameters(model).total(),
                        layer = (all - outside) / 2;
    CHECK(outside + 2 * layer == all);
    const auto check = [&](ZeroStage stage, std::uint64_t parameters, std::uint64_t gradients,
                           std::uint64_t states, std::uint64_t gathered) {
        const TrainingMemory memory = training_memory(model.config, stage, 4);
        CHECK(memory.parameters == 4 * parameters);
        CHECK(memory.gradients == 4 * gradients);
        CHECK(memory.optimizer_states == 8 * states);
        CHECK(memory.gathered == 4 * gathered);
        CHECK(memory.kept() == 4 * parameters + 4 * gradients + 8 * states);
        CHECK(memory.peak() == memory.kept() + 4 * gathered);
    };
    const std::uint64_t shard = outside / 4 + 2 * (layer / 4), whole = outside * 3 / 4 + layer;
    CHECK(layer % 4 == 0);
    check(ZeroStage::none, all, all, all, 0);
    check(ZeroStage::optimizer_states, all, all, shard, 0);
    check(ZeroStage::gradients, all, shard, shard, whole);
    check(ZeroStage::parameters, shard, shard, shard, 2 * whole);
    const TrainingMemory mixed =
        training_memory(model.config, ZeroStage::optimizer_states, 4, {2, 2, 12});
    CHECK(mixed.kept() == 4 * all + 12 * shard);
}

TEST_CASE("training_memory is what the shards hold") {
    const Task task = make_task(false, 4, 1);
    run_ranks(3, [&](Communicator& ranks) {
        TrainerState state = make_sharded_optimizer(ranks, task.model, task.args);
        ShardedModel sharded(ranks, task.model, ZeroStage::parameters);
        const TrainingMemory memory =
            training_memory(task.model.config, ZeroStage::parameters, ranks.size());
        std::uint64_t num_states = 0;
        for (const std::vector<Real>& piece : state.optimizer.exp_avg)
            num_states += 2 * piece.size();
        const std::uint64_t num_parameters = num_elements(sharded.parameter_shard());
        const std::uint64_t num_gradients = num_elements(sharded.gradient_shard());
        CHECK(num_states == 2 * num_parameters);
        if (ranks.rank() == 0) {
            CHECK(memory.parameters == 4 * num_parameters);
            CHECK(memory.gradients == 4 * num_gradients);
            CHECK(memory.optimizer_states == 4 * num_states);
        } else {
            CHECK(memory.parameters - 4 * num_parameters <= 4 * 3);  // at most one each group
        }
    });
}

}  // namespace
