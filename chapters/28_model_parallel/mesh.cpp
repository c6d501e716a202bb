#include "chapters/28_model_parallel/mesh.hpp"

#include "common/tensors/shape.hpp"

namespace llm {

MeshCoordinates coordinates(const MeshSizes& sizes, std::size_t rank) {
    require(rank < sizes.num_ranks(), "coordinates: rank {} of a mesh of {} ranks", rank,
            sizes.num_ranks());
    const std::size_t tensor = rank % sizes.tensor, before_tensor = rank / sizes.tensor;
    const std::size_t context = before_tensor % sizes.context;
    const std::size_t before_context = before_tensor / sizes.context;
    return {before_context / sizes.pipeline, before_context % sizes.pipeline, context, tensor};
}

std::size_t rank_at(const MeshSizes& sizes, const MeshCoordinates& at) {
    return ((at.data * sizes.pipeline + at.pipeline) * sizes.context + at.context) *
               sizes.tensor +
           at.tensor;
}

Mesh make_mesh(Communicator& ranks, const MeshSizes& sizes) {
    require(ranks.size() == sizes.num_ranks(),
            "mesh: {} x {} x {} x {} (data, pipeline, context, tensor) is not the number of "
            "ranks, {}",
            sizes.data, sizes.pipeline, sizes.context, sizes.tensor, ranks.size());
    const MeshCoordinates at = coordinates(sizes, ranks.rank());
    // The color of a group: its first rank, whose coordinate on the axis is 0.
    const auto group = [&](std::size_t MeshCoordinates::*axis) {
        MeshCoordinates first = at;
        first.*axis = 0;
        return ranks.split(rank_at(sizes, first));
    };
    return {sizes,
            at,
            group(&MeshCoordinates::data),
            group(&MeshCoordinates::pipeline),
            group(&MeshCoordinates::context),
            group(&MeshCoordinates::tensor),
            &ranks};
}

}  // namespace llm
