#include "chapters/24_parallel/demo/published_configs.hpp"
#include "chapters/24_parallel/demo/small_run.hpp"
#include "chapters/28_model_parallel/demo/clusters.hpp"
#include "chapters/28_model_parallel/demo/mesh_plan.hpp"
#include "chapters/28_model_parallel/demo/step_on_mesh.hpp"
#include "chapters/28_model_parallel/mesh_traffic.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

// "0 2 4", the ranks of a group.
std::string group_text(const MeshSizes& sizes, std::size_t rank, MeshAxis axis) {
    std::string text;
    for (const std::size_t other : ranks_of_axis(sizes, rank, axis))
        text += (text.empty() ? "" : " ") + to_text(other);
    return text;
}

// Bytes of rank 0 by axis: by the plan, and counted.
struct AxisBytes {
    std::uint64_t planned_messages = 0, planned_collectives = 0;
    BytesSent counted;
};
std::vector<AxisBytes> bytes_of_rank_0(const SmallRun& run, const MeshPlan& plan) {
    std::vector<AxisBytes> axes(4);
    for (const Traffic& traffic : traffic_of_rank(plan, 0)) {
        AxisBytes& axis = axes[std::size_t(traffic.axis)];
        (traffic.kind == Traffic::Kind::messages ? axis.planned_messages
                                                 : axis.planned_collectives) +=
            traffic.num_bytes;
    }
    run_ranks(plan.sizes.num_ranks(), [&](Communicator& all) {
        const Mesh mesh = make_mesh(all, plan.sizes);
        gradient_on_mesh(plan, mesh, run.model, sample_batches(run.args, 0, run.tokens))();
        if (all.rank() > 0) return;
        axes[std::size_t(MeshAxis::data)].counted = mesh.data->bytes_sent();
        axes[std::size_t(MeshAxis::pipeline)].counted = mesh.pipeline->bytes_sent();
        axes[std::size_t(MeshAxis::context)].counted = mesh.context->bytes_sent();
        axes[std::size_t(MeshAxis::tensor)].counted = mesh.tensor->bytes_sent();
    });
    return axes;
}

}  // namespace

void picture_of_a_mesh() {
    step("A mesh of 8 ranks: who is in which group");
    const MeshSizes sizes{2, 2, 1, 2};
    for (std::size_t data = 0; data < sizes.data; ++data) {
        std::string line = "data " + to_text(data) + ":";
        for (std::size_t stage = 0; stage < sizes.pipeline; ++stage) {
            const std::size_t first = rank_at(sizes, {data, stage, 0, 0});
            line += (stage == 0 ? "  stage " : "  ->  stage ") + to_text(stage) + " [" +
                    group_text(sizes, first, MeshAxis::tensor) + "]";
        }
        say(line);
    }
    std::vector<TableRow> rows;
    for (std::size_t rank = 0; rank < sizes.num_ranks(); ++rank) {
        const MeshCoordinates at = coordinates(sizes, rank);
        rows.push_back({to_text(rank), to_text(at.data), to_text(at.pipeline),
                        to_text(at.tensor), group_text(sizes, rank, MeshAxis::data),
                        group_text(sizes, rank, MeshAxis::pipeline),
                        group_text(sizes, rank, MeshAxis::tensor)});
    }
    show_table({"rank", "data", "stage", "tensor", "gradients with", "hidden states with",
                "sums with"},
               rows);
}

void planned_and_counted_bytes(std::uint32_t seed) {
    step("Bytes that rank 0 sends in a step: by formula, and counted");
    SmallRun run = small_run(seed);
    run.args.batch_size = 1;
    run.args.gradient_accumulation_steps = 5;
    std::vector<TableRow> rows;
    const auto add = [&](const std::string& name, const MeshSizes& sizes, MeshAxis axis) {
        const MeshPlan plan{run.model.config, sizes, 5, 1, run.args.seq_len};
        const AxisBytes bytes = bytes_of_rank_0(run, plan)[std::size_t(axis)];
        rows.push_back(
            {name, with_commas(bytes.planned_messages), with_commas(bytes.counted.messages),
             with_commas(bytes.planned_collectives), with_commas(bytes.counted.collectives())});
    };
    const MeshSizes three_axes{2, 2, 1, 2};
    add("data, of 2 x 2 x 2", three_axes, MeshAxis::data);
    add("pipeline", three_axes, MeshAxis::pipeline);
    add("tensor", three_axes, MeshAxis::tensor);
    add("context, of 3", {1, 1, 3, 1}, MeshAxis::context);
    show_table({"axis", "messages", "counted", "collective", "counted"}, rows);
}

void split_of_published_model() {
    step("Estimated: Llama 3.1 70B on 1,024 GPUs, 64 for each copy of the model");
    const Config config = published_configs()[2].config;
    std::vector<TableRow> rows;
    Line all{"whole step", {}, {}}, bubble{"bubble", {}, {}}, tensor{"tensor", {}, {}};
    for (std::size_t t = 1; t <= 64; t *= 2) {
        const MeshPlan plan = validate_mesh_plan(
            {config, {16, 64 / t, 1, t}, 512, 1, 4096, true, bytes_per_bfloat16});
        const StepTime time = step_time(plan, infiniband_cluster);
        rows.push_back({to_text(t), to_text(64 / t), fixed(time.compute, 1),
                        fixed(time.bubble, 1), fixed(time.tensor, 1),
                        fixed(time.data + time.pipeline, 1), fixed(time.total(), 1)});
        for (const auto& [line, seconds] : {std::pair<Line*, double>{&all, time.total()},
                                            {&bubble, time.bubble},
                                            {&tensor, time.tensor}}) {
            line->x.push_back(double(t));
            line->y.push_back(seconds);
        }
    }
    show_table({"tensor", "stages", "compute", "bubble", "tensor sums", "others", "seconds"},
               rows);
    LinePlot panel{"Llama 3.1 70B, 16 x 64 GPUs (estimated)",
                   "tensor ranks",
                   "seconds of a step",
                   {all, bubble, tensor}};
    panel.log_x = true;
    plot("mesh", {panel});
}

}  // namespace llm
