// Chapter 28, file 7 of 10: a step of training on a mesh, which has all axes at once.
#pragma once

#include "chapters/24_parallel/data_parallel.hpp"
#include "chapters/28_model_parallel/context_parallel.hpp"
#include "chapters/28_model_parallel/mesh.hpp"
#include "chapters/28_model_parallel/pipeline.hpp"

namespace llm {

// The types of this chapter, one in another: a stage of a pipeline has some layers, of which a
// tensor rank has some heads and features, and their attention is a ring of context ranks. An
// axis of size 1 changes nothing.
using MeshModel = TensorParallelModelWith<RingAttention>;
struct MeshPart {
    Config config;     // of the whole model
    const Mesh* mesh;  // must outlive the part
    PipelineStage<MeshModel> stage;
};
// The part of this rank. With a length, all sequences have T tokens, and tensor ranks divide
// the residual stream as well (sequence parallelism). Throws ValueError as tensor_parallel_part
// and pipeline_stage do.
MeshPart mesh_part(const Model& whole, const Mesh& mesh,
                   std::optional<std::size_t> sequence_parallel_len = {});  // T

// The parameters of a part, or of its gradient, with the names that they have in the whole
// model. A tied matrix is listed on the first and on the last stage.
std::vector<Parameter> parameters_of(const MeshPart& part, MeshModel& model_or_gradient);

// Each parameter of the whole model, or slice of it, has one owner: of the ranks that have it,
// the first one on each axis. What is counted or collected over all ranks is that of owners.
bool is_owner(const MeshPart& part, const std::string& name);

// The micro-batches of this rank: those of its data rank (batches_of_rank of chapter 24), of
// which each context rank has its tokens.
MicroBatchesOf<MeshModel> micro_batches_of(const MeshPart& part,
                                           const std::vector<RankBatch>& batches);

// What this rank adds to the loss of a step: 0 but on the last stage, on its first tensor rank.
// To the gradient, that of this rank's part for the whole step is added: the sums that each
// axis needs are included.
double loss_and_gradient(const MeshPart& part, const std::vector<RankBatch>& batches,
                         MeshModel& gradient);

// The L2 norm of the gradient of the whole model, on each rank. Each element counts once.
double mesh_grad_norm(const MeshPart& part, MeshModel& gradient);

// The whole model, gradient or moving averages, on each rank, from the parameters of all parts.
Model gather(const MeshPart& part, const std::vector<Parameter>& parameters);

// train_step of chapter 13 on all ranks of a mesh. Of the state, the optimizer has the moving
// averages of this rank's part, and the model is not used. The gradient is a buffer. Throws
// ValueError for what would not be the step of one process: Muon, which needs whole matrices,
// dropout, and masks of documents, which a ring does not have.
StepMetrics mesh_step(MeshPart& part, TrainerState& state, const TrainingArguments& args,
                      const std::vector<Id>& tokens, MeshModel& gradient);

}  // namespace llm
