// Chapter 28, file 8 of 10: the plan of a mesh, computed from sizes alone: what each rank has
// of a model, and what it computes. No model is made.
#pragma once

#include "chapters/24_parallel/training_memory.hpp"
#include "chapters/28_model_parallel/mesh.hpp"

namespace llm {

// A step of training on a mesh, in sizes. Names of the batch: Megatron-LM.
struct MeshPlan {
    Config config;
    MeshSizes sizes;
    std::size_t global_batch_size = 1;  // sequences of the step, divided among data ranks
    std::size_t micro_batch_size = 1;   // sequences that a rank computes at once
    std::size_t seq_len = 1;            // T
    bool sequence_parallel = false;
    std::size_t bytes_per_number = sizeof(Real);  // of activations and gradients
};
// Throws ValueError if a size is 0, if the tensor ranks cannot share heads, features or
// vocabulary, and if there are more stages than layers, fewer sequences than data ranks or
// fewer tokens than chunks of the context ranks.
MeshPlan validate_mesh_plan(MeshPlan plan);
// The sequences of each micro-batch of a data rank, as batches_of_rank of chapter 24 has them.
std::vector<std::uint64_t> micro_batch_sizes(const MeshPlan& plan, std::size_t data_rank);
// The size of part_of, with 64 bits in WebAssembly too; index n is part 0.
std::uint64_t part_size(std::uint64_t count, std::uint64_t num_parts, std::uint64_t index);

enum class MeshAxis { data, pipeline, context, tensor };
// The ranks that differ from this one on one axis alone, in order; this rank is one of them.
std::vector<std::size_t> ranks_of_axis(const MeshSizes& sizes, std::size_t rank, MeshAxis axis);

// The sizes of a rank's part: its heads, features, rows of the vocabulary and layers.
Config config_of_part(const MeshPlan& plan, std::size_t rank);
// A parameter of a part: its elements, and how many tensor ranks have the same one and add
// their partial gradients of it.
struct PlannedParameter {
    std::uint64_t size;
    std::uint64_t num_copies = 1;
};
// In the order of named_parameters.
std::vector<PlannedParameter> parameters_of_part(const MeshPlan& plan, std::size_t rank);
// What the rank keeps of them, without activations.
TrainingMemory memory_of_part(const MeshPlan& plan, std::size_t rank,
                              const BytesPerParameter& bytes = {});
// FLOPs of this rank in the step: the backward pass has twice those of the forward pass.
double training_flops(const MeshPlan& plan, std::size_t rank);

}  // namespace llm
