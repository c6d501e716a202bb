// Chapter 28 — What if a model does not fit on one machine? This program divides layers, the
// list of layers, the tokens of a sequence and experts among ranks, and takes a step of
// training with each.
#include "chapters/28_model_parallel/demo/mesh_plan.hpp"
#include "chapters/28_model_parallel/demo/model_axes.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    Options options("28_model_parallel", "What if a model does not fit on one machine?");
    MeshArguments mesh;
    add_mesh_options(options, mesh);
    return options.run(argc, argv, [&] {
        if (options.given("--mesh")) return print_mesh_plan(mesh);
        two_features_by_hand();
        slices_of_a_rank(options.seed());
        one_step_of_tensor_parallelism(options.seed());
        wrong_tensor_parallelism(options.seed());
        pipeline_schedules();
        one_step_of_a_pipeline(options.seed());
        zigzag_chunks();
        one_step_of_ring_attention(options.seed());
        rows_of_an_all_to_all(options.seed());
        one_step_of_expert_parallelism(options.seed());
        picture_of_a_mesh();
        planned_and_counted_bytes(options.seed());
        split_of_published_model();
    });
}
