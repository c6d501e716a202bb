// The bytes of the plan are those that the ranks count.
#include "chapters/28_model_parallel/mesh_traffic.hpp"

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
void check_bytes(const MeshStep& step, std::size_t rank, MeshAxis axis, const BytesSent& sent) {
    const std::vector<Traffic> rows = traffic_of_rank(validate_mesh_step(step), rank);
    CHECK(planned_bytes(rows, axis, Traffic::Kind::messages) == sent.messages);
    CHECK(planned_bytes(rows, axis, Traffic::Kind::collective) == sent.collectives());
}
std::vector<MicroBatch> planned_micro_batches(const MeshStep& step) {
    std::vector<MicroBatch> result;
    for (const std::size_t rows : micro_batch_sizes(step, 0)) {
        const Batch batch = square_batch(rows, step.seq_len);
        result.push_back({batch.input_ids, batch.targets,
                          causal_attention_inputs(step.config, rows, step.seq_len), 1});
    }
    return result;
}
template <class AnyModel>
void sum_gradients(Communicator& ranks, AnyModel& gradient) {
    for (const Parameter& parameter : named_parameters(gradient))
        ranks.all_reduce(parameter.values);
}

TEST_CASE("planned bytes: tensor parallelism, with and without sequence parallelism") {
    for (const bool sequence_parallel : {false, true})
        for (const bool tied : {false, true})
            for (const std::size_t n : {1, 2, 4}) {
                CAPTURE(n);
                CAPTURE(sequence_parallel);
                MeshStep step{uneven_config(tied), {1, 1, 1, n}, 3, 3, 7, sequence_parallel};
                step.config.head_dim = 6;  // so that 4 ranks do not divide a QK norm
                const Model model = uneven_model(step.config);
                const Batch batch = square_batch(3, 7);
                run_ranks(n, [&](Communicator& ranks) {
                    const TensorParallelModel part =
                        tensor_parallel_part(model, {&ranks, sequence_parallel, 7});
                    TensorParallelModel gradient = zeros_like(part);
                    forward_backward(part, batch.input_ids, batch.targets,
                                     causal_attention_inputs(model.config, 3, 7), gradient);
                    sum_partial_gradients(model.config, gradient);
                    check_bytes(step, ranks.rank(), MeshAxis::tensor, ranks.bytes_sent());
                });
            }
}

TEST_CASE("planned bytes: a pipeline, in both schedules, whose last micro-batch is smaller") {
    for (const bool tied : {false, true})
        for (const bool is_gpipe : {false, true})
            for (const std::size_t p : {1, 2, 3}) {
                CAPTURE(p);
                MeshStep step{uneven_config(tied), {1, p, 1, 1}, 7, 2, 5};
                step.config.num_hidden_layers = 3;
                const Model model = uneven_model(step.config);
                run_ranks(p, [&](Communicator& ranks) {
                    const PipelineStage<Model> stage = pipeline_stage(model, ranks);
                    Model gradient = zeros_like(stage.part);
                    run_schedule(stage,
                                 is_gpipe
                                     ? gpipe_schedule(4)
                                     : one_forward_one_backward_schedule(4, p, ranks.rank()),
                                 planned_micro_batches(step), gradient);
                    sum_tied_gradients(stage, gradient);
                    check_bytes(step, ranks.rank(), MeshAxis::pipeline, ranks.bytes_sent());
                });
            }
}

TEST_CASE("planned bytes: ring attention, whose chunks are not equally long") {
    for (const bool tied : {false, true})
        for (const std::size_t n : {1, 2, 3, 4}) {
            CAPTURE(n);
            const MeshStep step{uneven_config(tied), {1, 1, n, 1}, 2, 2, 13};
            const Model model = uneven_model(step.config);
            const Batch batch = square_batch(2, 13);
            run_ranks(n, [&](Communicator& ranks) {
                const ContextParallelModel part = context_parallel(model, ranks);
                ContextParallelModel gradient = zeros_like(part);
                const RingAttention::Inputs inputs = ring_inputs(model.config, ranks, 2, 13);
                const std::vector<std::size_t> own = inputs.chunks.positions(ranks.rank());
                const auto [logits, saved] =
                    model_forward(part, slice_positions(batch.input_ids, own), inputs);
                model_backward(
                    part, saved,
                    cross_entropy_backward(logits, slice_positions(batch.targets, own)),
                    gradient);
                sum_gradients(ranks, gradient);
                check_bytes(step, ranks.rank(), MeshAxis::context, ranks.bytes_sent());
            });
        }
}

TEST_CASE(
    "planned bytes: data parallelism; chapter 24's buckets send as much, over all ranks") {
    for (const bool tied : {false, true})
        for (const std::size_t n : {1, 2, 3}) {
            const MeshStep step{uneven_config(tied), {n, 1, 1, 1}, 7, 2, 5};
            const Model model = uneven_model(step.config);
            std::vector<std::uint64_t> by_parameter(n), in_buckets(n);
            run_ranks(n, [&](Communicator& ranks) {
                Model gradient = zeros_like(model);
                sum_gradients(ranks, gradient);
                check_bytes(step, ranks.rank(), MeshAxis::data, ranks.bytes_sent());
                by_parameter[ranks.rank()] = ranks.bytes_sent().all_reduce;
                all_reduce_gradient(ranks, gradient);
                in_buckets[ranks.rank()] =
                    ranks.bytes_sent().all_reduce - by_parameter[ranks.rank()];
            });
            const auto sum = [](const std::vector<std::uint64_t>& bytes) {
                return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
            };
            const std::uint64_t all = count_parameters(model).total() * sizeof(Real);
            CHECK(sum(by_parameter) == 2 * (n - 1) * all);
            CHECK(sum(in_buckets) == 2 * (n - 1) * all);
        }
}

TEST_CASE("planned bytes: a mesh of data ranks, stages and tensor ranks, by axis") {
    for (const bool tied : {false, true}) {
        const MeshStep step{uneven_config(tied), {2, 2, 1, 2}, 7, 2, 7, true};
        const Model model = uneven_model(step.config);
        run_ranks(8, [&](Communicator& all) {
            const Mesh mesh = make_mesh(all, step.sizes);
            const auto stage = pipeline_stage(
                tensor_parallel_part(model, {mesh.tensor.get(), true, 7}), *mesh.pipeline);
            TensorParallelModel gradient = zeros_like(stage.part);
            // Data ranks have 4 and 3 sequences, both in two micro-batches.
            MeshStep own = step;
            own.sizes = {};
            own.global_batch_size = mesh.at.data == 0 ? 4 : 3;
            run_schedule(stage, one_forward_one_backward_schedule(2, 2, mesh.at.pipeline),
                         planned_micro_batches(own), gradient);
            sum_tied_gradients(stage, gradient);
            sum_partial_gradients(model.config, gradient);
            sum_gradients(*mesh.data, gradient);
            check_bytes(step, all.rank(), MeshAxis::tensor, mesh.tensor->bytes_sent());
            check_bytes(step, all.rank(), MeshAxis::pipeline, mesh.pipeline->bytes_sent());
            check_bytes(step, all.rank(), MeshAxis::data, mesh.data->bytes_sent());
            std::uint64_t planned = 0;
            for (const Traffic& traffic : traffic_of_rank(step, all.rank()))
                planned += traffic.num_bytes;
            CHECK(planned == all.bytes_sent().messages + all.bytes_sent().collectives());
        });
    }
}

TEST_CASE("planned messages go to the next rank of a ring, and to neighboring stages") {
    MeshStep step{uneven_config(true), {2, 3, 2, 2}, 4, 2, 13, true};
    step.config.num_hidden_layers = 3;
    const std::size_t rank = rank_at(step.sizes, {1, 1, 1, 1});  // of 2 x 3 x 2 x 2
    for (const Traffic& traffic : traffic_of_rank(step, rank)) {
        CAPTURE(traffic.what);
        MeshCoordinates to{1, 1, 1, 1};
        if (traffic.axis == MeshAxis::data) to.data = 0;
        if (traffic.axis == MeshAxis::context) to.context = 0;
        if (traffic.axis == MeshAxis::tensor) to.tensor = 0;
        if (traffic.axis == MeshAxis::pipeline)
            to.pipeline = traffic.what == "hidden states" ? 2 : 0;
        CHECK(traffic.receiver == rank_at(step.sizes, to));
    }
    const std::vector<Traffic> of_last =
        traffic_of_rank(step, rank_at(step.sizes, {0, 2, 0, 0}));
    const auto tied = std::ranges::find(of_last, "gradient of tied matrix", &Traffic::what);
    REQUIRE(tied != of_last.end());
    CHECK(tied->receiver == 0);  // the first stage
}

}  // namespace
