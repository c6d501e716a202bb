#include "chapters/28_model_parallel/demo/step_on_mesh.hpp"

#include "chapters/28_model_parallel/mesh_step.hpp"

namespace llm {

std::function<void()> gradient_on_mesh(const MeshPlan& plan, const Mesh& mesh,
                                       const Model& model,
                                       const std::vector<StepBatch>& batches) {
    std::optional<std::size_t> sequence_parallel_len;
    if (plan.sequence_parallel) sequence_parallel_len = plan.seq_len;
    const MeshPart part = mesh_part(model, mesh, sequence_parallel_len);
    return [part, own = batches_of_rank(batches, plan.sizes.data, mesh.at.data),
            gradient = zeros_like(part.stage.part)]() mutable {
        zero_grad(gradient);
        loss_and_gradient(part, own, gradient);
    };
}

}  // namespace llm
