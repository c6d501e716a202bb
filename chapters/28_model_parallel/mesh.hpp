// Chapter 28, file 6 of 10: a mesh. The axes of this chapter and data parallelism, together.
#pragma once

#include <memory>

#include "common/parallel/communicator.hpp"

namespace llm {

// The sizes of the axes; their product is the number of ranks.
struct MeshSizes {
    std::size_t data = 1, pipeline = 1, context = 1, tensor = 1;

    std::size_t num_ranks() const { return data * pipeline * context * tensor; }
    bool operator==(const MeshSizes&) const = default;
};

// The place of a rank on each axis. Neighbors on the last axis, tensor, have neighboring
// numbers, because they exchange most: rank = ((data * P + pipeline) * K + context) * T +
// tensor, for P stages, K context ranks and T tensor ranks. Source: Megatron-LM,
// parallel_state.py (whose order is tp-cp-dp-pp: there, a stage is the slowest axis).
struct MeshCoordinates {
    std::size_t data, pipeline, context, tensor;
};
// Throws ValueError unless rank < sizes.num_ranks().
MeshCoordinates coordinates(const MeshSizes& sizes, std::size_t rank);
std::size_t rank_at(const MeshSizes& sizes, const MeshCoordinates& at);

// The groups of one rank: on each axis, the ranks that differ from it in this coordinate alone.
struct Mesh {
    MeshSizes sizes;
    MeshCoordinates at;
    std::unique_ptr<Communicator> data, pipeline, context, tensor;
    Communicator* all;
};
// All ranks call it. Throws ValueError unless the product of the sizes is the number of ranks.
Mesh make_mesh(Communicator& ranks, const MeshSizes& sizes);

}  // namespace llm
