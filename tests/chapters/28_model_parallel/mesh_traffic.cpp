// The bytes of the plan are those that the ranks count.
#include "chapters/28_model_parallel/mesh_traffic.hpp"

#include "chapters/28_model_parallel/mesh_step.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "tests/support/check.hpp"
#include "tests/support/model_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

std::uint64_t planned_bytes(const std::vector<Traffic>& rows, MeshAxis axis,
                            Traffic::Kind kind) {
    std::uint64_t bytes = 0;
    for (const Traffic& traffic : rows)
        if (traffic.axis == axis && traffic.kind == kind) bytes += traffic.num_bytes;
    return bytes;
}
void check_bytes(const MeshPlan& plan, std::size_t rank, MeshAxis axis, const BytesSent& sent) {
    const std::vector<Traffic> rows = traffic_of_rank(validate_mesh_plan(plan), rank);
    CHECK(planned_bytes(rows, axis, Traffic::Kind::messages) == sent.messages);
    CHECK(planned_bytes(rows, axis, Traffic::Kind::collective) == sent.collectives());
}
std::vector<StepBatch> batches_of(const MeshPlan& plan) {
    return {plan.global_batch_size / plan.micro_batch_size,
            {square_batch(plan.micro_batch_size, plan.seq_len), 0}};
}

// The bytes of a step on each axis, and on all.
void check_planned_bytes(const MeshPlan& plan) {
    const auto& sizes = plan.sizes;
    CAPTURE(sizes.data);
    CAPTURE(sizes.pipeline);
    CAPTURE(sizes.context);
    CAPTURE(sizes.tensor);
    const Model model = uneven_model(plan.config);
    run_ranks(sizes.num_ranks(), [&](Communicator& all) {
        const Mesh mesh = make_mesh(all, sizes);
        std::optional<std::size_t> sequence_parallel_len;
        if (plan.sequence_parallel) sequence_parallel_len = plan.seq_len;
        const MeshPart part = mesh_part(model, mesh, sequence_parallel_len);
        MeshModel gradient = zeros_like(part.stage.part);
        loss_and_gradient(part, batches_of_rank(batches_of(plan), sizes.data, mesh.at.data),
                          gradient);
        check_bytes(plan, all.rank(), MeshAxis::data, mesh.data->bytes_sent());
        check_bytes(plan, all.rank(), MeshAxis::pipeline, mesh.pipeline->bytes_sent());
        check_bytes(plan, all.rank(), MeshAxis::context, mesh.context->bytes_sent());
        check_bytes(plan, all.rank(), MeshAxis::tensor, mesh.tensor->bytes_sent());
        std::uint64_t planned = 0;
        for (const Traffic& traffic : traffic_of_rank(plan, all.rank()))
            planned += traffic.num_bytes;
        CHECK(planned == all.bytes_sent().messages + all.bytes_sent().collectives());
    });
}

TEST_CASE("planned bytes: tensor parallelism, with and without sequence parallelism") {
    for (const bool sequence_parallel : {false, true})
        for (const bool tied : {false, true})
            for (const std::size_t n : {1, 2, 4}) {
                MeshPlan plan{uneven_config(tied), {1, 1, 1, n}, 3, 3, 7, sequence_parallel};
                plan.config.head_dim = 6;  // so that 4 ranks do not divide a QK norm
                check_planned_bytes(plan);
            }
}

TEST_CASE("planned bytes: a pipeline, also one whose last micro-batch is smaller") {
    for (const bool tied : {false, true}) {
        MeshPlan plan{uneven_config(tied), {1, 1, 1, 1}, 8, 2, 5};
        plan.config.num_hidden_layers = 3;
        for (const std::size_t p : {1, 2, 3}) {
            plan.sizes = {1, p, 1, 1};
            check_planned_bytes(plan);
        }
        plan.sizes = {3, 2, 1, 1};  // of 3, 3 and 2 sequences, in micro-batches of up to 2
        check_planned_bytes(plan);
    }
}

TEST_CASE("planned bytes: ring attention, whose chunks are not equally long") {
    for (const bool tied : {false, true})
        for (const std::size_t n : {1, 2, 3, 4})
            check_planned_bytes({uneven_config(tied), {1, 1, n, 1}, 2, 2, 13});
}

TEST_CASE("planned bytes: data parallelism, with unequal shares") {
    for (const bool tied : {false, true})
        for (const std::size_t n : {1, 2, 3})
            check_planned_bytes({uneven_config(tied), {n, 1, 1, 1}, 8, 2, 5});
}

TEST_CASE("planned bytes: meshes of 8 ranks, by axis") {
    for (const bool tied : {false, true}) {
        check_planned_bytes({uneven_config(tied), {2, 2, 1, 2}, 6, 2, 7, true});
        check_planned_bytes({uneven_config(tied), {2, 1, 2, 2}, 4, 2, 13, false});
        check_planned_bytes({uneven_config(tied), {1, 2, 2, 2}, 4, 2, 13, true});
    }
}

TEST_CASE("planned messages of a step: how many follow one another") {
    MeshPlan plan{uneven_config(true), {4, 3, 3, 4}, 24, 2, 13, true};  // 3 micro-batches
    plan.config.num_hidden_layers = 5;                                  // 2, 2 and 1 in a stage
    const auto check = [&](std::size_t stage, const std::vector<std::uint64_t>& expected) {
        std::vector<std::uint64_t> planned;
        for (const Traffic& traffic :
             traffic_of_rank(plan, rank_at(plan.sizes, {3, stage, 1, 2})))
            planned.push_back(traffic.num_messages);
        CHECK(planned == expected);
    };
    // Data: an all-reduce of 2 (4 - 1). Pipeline: 3 micro-batches to each neighbor, and an
    // all-reduce of two ranks. Context: for each layer and micro-batch, keys and values pass 2
    // ranks forward and 3 backward, their gradients 3; then an all-reduce. Tensor: for each
    // micro-batch a reduce-scatter and an all-gather, 3 messages each, 4 times a layer and
    // once for the embedding or the head, and for the loss an all-reduce and an all-gather;
    // then all-reduces, for each layer of 4 norms on 4 ranks and of 4 tensors on 2.
    check(0, {6, 3, 2, 2 * 3 * 10, 2 * 3 * 6, 4, 2 * 3 * 24, 3 * 6, 2 * 32});
    check(1, {6, 3, 3, 2 * 3 * 10, 2 * 3 * 6, 4, 2 * 3 * 24, 2 * 32});
    check(2, {6, 3, 2, 3 * 10, 3 * 6, 4, 3 * 24, 3 * 6, 3 * 9, 32 + 6});
    plan.sequence_parallel = false;  // all-reduces, and norms are no copies
    check(1, {6, 3, 3, 2 * 3 * 10, 2 * 3 * 6, 4, 2 * 3 * 24, 2 * 20});
    plan.sizes = {};
    CHECK(traffic_of_rank(plan, 0).empty());  // one rank sends nothing
}

TEST_CASE("planned messages go to the next rank of a ring, and to neighboring stages") {
    MeshPlan plan{uneven_config(true), {2, 3, 2, 2}, 4, 2, 13, true};
    plan.config.num_hidden_layers = 3;
    const std::size_t rank = rank_at(plan.sizes, {1, 1, 1, 1});  // of 2 x 3 x 2 x 2
    for (const Traffic& traffic : traffic_of_rank(plan, rank)) {
        CAPTURE(traffic.what);
        MeshCoordinates to{1, 1, 1, 1};
        if (traffic.axis == MeshAxis::data) to.data = 0;
        if (traffic.axis == MeshAxis::context) to.context = 0;
        if (traffic.axis == MeshAxis::tensor) to.tensor = 0;
        if (traffic.axis == MeshAxis::pipeline)
            to.pipeline = traffic.what == "hidden states" ? 2 : 0;
        CHECK(traffic.receiver == rank_at(plan.sizes, to));
    }
    const std::vector<Traffic> of_last =
        traffic_of_rank(plan, rank_at(plan.sizes, {0, 2, 0, 0}));
    const auto tied = std::ranges::find(of_last, "gradient of tied matrix", &Traffic::what);
    REQUIRE(tied != of_last.end());
    CHECK(tied->receiver == 0);  // the first stage
}

}  // namespace
