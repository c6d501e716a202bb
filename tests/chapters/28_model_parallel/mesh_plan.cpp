#include "chapters/28_model_parallel/mesh_plan.hpp"

#include "common/parallel/thread_ranks.hpp"
#include "tests/support/check.hpp"
#include "tests/support/model_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

// Parameters of 3 layers, uneven on each axis.
MeshPlan uneven_step(bool tied, const MeshSizes& sizes, bool sequence_parallel) {
    MeshPlan plan{uneven_config(tied), sizes, 7, 2, 13, sequence_parallel};
    plan.config.num_hidden_layers = 3;
    return validate_mesh_plan(plan);
}

TEST_CASE(
    "the plan of a mesh: the parameters of each part, as they are made, and their copies") {
    for (const bool tied : {false, true})
        for (const bool sequence_parallel : {false, true})
            for (const std::size_t p : {1, 2, 3})
                for (const std::size_t n : {1, 2, 4}) {
                    const MeshPlan plan = uneven_step(tied, {1, p, 1, n}, sequence_parallel);
                    const Model model = uneven_model(plan.config);
                    run_ranks(p * n, [&](Communicator& all) {
                        const Mesh mesh = make_mesh(all, plan.sizes);
                        const TensorParallelGroup group{mesh.tensor.get(), sequence_parallel,
                                                        13};
                        auto stage =
                            pipeline_stage(tensor_parallel_part(model, group), *mesh.pipeline);
                        std::vector<std::uint64_t> made, copies, planned, planned_copies;
                        for (const Parameter& parameter : named_parameters(stage.part)) {
                            if (parameter.values.empty()) continue;  // of other stages
                            made.push_back(parameter.values.size());
                            const Slice slice = slice_of(plan.config, parameter.name, group);
                            copies.push_back(slice.partial_gradients ? slice.num_copies : 1);
                            if (parameter.name.find("o_proj.bias") != std::string::npos)
                                copies.back() = 1;
                        }
                        for (const auto& [size, num] : parameters_of_part(plan, all.rank())) {
                            planned.push_back(size);
                            planned_copies.push_back(num);
                        }
                        CHECK(planned == made);
                        CHECK(planned_copies == copies);
                        std::uint64_t sum = 0;
                        for (const std::uint64_t size : made) sum += size;
                        CHECK(memory_of_part(plan, all.rank()).kept() == 16 * sum);
                    });
                }
}

TEST_CASE("the plan of one rank: all of the model, as training_memory and flops_per_token") {
    const MeshPlan plan = uneven_step(true, {}, false);
    CHECK(memory_of_part(plan, 0, {2, 2, 12}).kept() ==
          training_memory(plan.config, ZeroStage::none, 1, {2, 2, 12}).kept());
    double flops = 0;
    for (std::size_t t = 0; t < 13; ++t) flops += double(flops_per_token(plan.config, t));
    CHECK(training_flops(plan, 0) == doctest::Approx(3 * 7 * flops));
}

TEST_CASE("the FLOPs of all ranks are those of one, if the sizes divide") {
    MeshPlan plan = uneven_step(true, {}, false);
    plan.config.vocab_size = 12;
    plan.config.intermediate_size = 14;
    plan.global_batch_size = 6;
    const double all = training_flops(plan, 0);
    for (const MeshSizes& sizes :
         {MeshSizes{3, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 3, 2, 2}}) {
        plan.sizes = sizes;
        double sum = 0;
        for (std::size_t rank = 0; rank < sizes.num_ranks(); ++rank)
            sum += training_flops(plan, rank);
        CHECK(sum == doctest::Approx(all));
    }
}

TEST_CASE("micro-batches of a data rank: as batches_of_rank has them") {
    MeshPlan plan = uneven_step(true, {3}, false);  // 7 sequences: 3, 2 and 2
    using Sizes = std::vector<std::uint64_t>;
    CHECK(micro_batch_sizes(plan, 0) == Sizes{2, 1});
    CHECK(micro_batch_sizes(plan, 1) == Sizes{2, 1});  // one is repeated with share 0
    plan.micro_batch_size = 5;
    CHECK(micro_batch_sizes(plan, 2) == Sizes{2});
    for (const std::size_t size : {1, 2, 3, 5})
        for (const std::size_t num_batches : {1, 2, 4})
            for (const std::size_t num_ranks : {1, 2, 3, 4}) {
                if (num_ranks > size * num_batches) continue;
                plan.sizes.data = num_ranks;
                plan.global_batch_size = size * num_batches;
                plan.micro_batch_size = size;
                const std::vector<StepBatch> batches(num_batches, {square_batch(size, 5), 0});
                for (std::size_t rank = 0; rank < num_ranks; ++rank) {
                    Sizes expected;
                    for (const RankBatch& own : batches_of_rank(batches, num_ranks, rank))
                        expected.push_back(own.step_batch.batch.input_ids.shape(0));
                    CHECK(micro_batch_sizes(plan, rank) == expected);
                }
            }
}

TEST_CASE("ranks_of_axis: the members of the groups of make_mesh") {
    const MeshSizes sizes{2, 3, 1, 2};
    using Ranks = std::vector<std::size_t>;
    CHECK(ranks_of_axis(sizes, 9, MeshAxis::data) == Ranks{3, 9});
    CHECK(ranks_of_axis(sizes, 9, MeshAxis::pipeline) == Ranks{7, 9, 11});
    CHECK(ranks_of_axis(sizes, 9, MeshAxis::context) == Ranks{9});
    CHECK(ranks_of_axis(sizes, 9, MeshAxis::tensor) == Ranks{8, 9});
}

TEST_CASE("a mesh that the model or the batch does not allow is an error") {
    const auto check = [](const MeshPlan& plan, const char* message) {
        CHECK_THROWS_WITH_AS(validate_mesh_plan(plan), message, ValueError);
    };
    MeshPlan plan{uneven_config(true), {}, 7, 2, 13};  // H 4, Hkv 2, F 13, V 11, 2 layers
    plan.sizes = {1, 1, 0, 2};
    check(plan, "mesh: 1 x 1 x 0 x 2 is 0 ranks");
    plan.sizes = {1, 1, 1, 3};
    check(plan,
          "mesh: tensor=3, but so many ranks cannot share 4 query heads and 2 key/value heads");
    plan.sizes = {1, 3, 1, 1};
    check(plan, "mesh: pipeline=3, but the model has 2 layers");
    plan.sizes = {8, 2, 1, 1};
    check(plan, "mesh: data=8 (of 16 ranks), but a step has 7 sequences");
    plan.sizes = {1, 1, 7, 1};
    check(plan, "mesh: context=7, which is 14 chunks, but a sequence has 13 tokens");
    plan.sizes = {1, 1, 6, 1};
    plan.seq_len = 12;
    CHECK(validate_mesh_plan(plan).seq_len == 12);  // one token in each chunk
    plan.sizes = {};
    plan.seq_len = 0;
    CHECK_THROWS_WITH_AS(validate_mesh_plan(plan), doctest::Contains("sequences of 0 tokens"),
                         ValueError);
    plan.seq_len = 13;
    plan.micro_batch_size = 0;
    check(plan, "mesh: micro-batches of 0 sequences");
    plan.micro_batch_size = 1;
    plan.sizes = {1, 1, 1, 4};
    plan.config.intermediate_size = 3;
    check(plan, "mesh: tensor=4, but the model has 3 features and 11 tokens");
    plan.config = uneven_config(true, QKNormType::over_all_heads, AttentionBias::none);
    plan.sizes = {1, 1, 2, 1};
    CHECK(validate_mesh_plan(plan).sizes == plan.sizes);
    plan.sizes = {1, 1, 1, 2};
    check(plan, "mesh: tensor=2, but a QK norm over all heads needs a mean over ranks");
}

}  // namespace
