// Chapter 28: the gradient of a step on a mesh, for the demo that counts bytes and for
// bench_parallel.
#pragma once

#include "chapters/24_parallel/data_parallel.hpp"
#include "chapters/28_model_parallel/mesh_plan.hpp"

namespace llm {

// Makes the part of this rank, and returns a function that computes its gradient of the step,
// with all sums over ranks. The sequences of the batches are those of the plan.
std::function<void()> gradient_on_mesh(const MeshPlan& plan, const Mesh& mesh,
                                       const Model& model,
                                       const std::vector<StepBatch>& batches);

}  // namespace llm
