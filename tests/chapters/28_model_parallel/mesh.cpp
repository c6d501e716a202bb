#include "chapters/28_model_parallel/mesh.hpp"

#include "common/parallel/thread_ranks.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

constexpr MeshSizes uneven_mesh{2, 3, 1, 2};  // data, pipeline, context, tensor

TEST_CASE("a mesh: each rank has a place, and tensor ranks are neighbors") {
    for (std::size_t rank = 0; rank < 12; ++rank)
        CHECK(rank_at(uneven_mesh, coordinates(uneven_mesh, rank)) == rank);
    const MeshCoordinates at =
        coordinates(uneven_mesh, 9);  // 9 = ((1 * 3 + 1) * 1 + 0) * 2 + 1
    CHECK(at.data == 1);
    CHECK(at.pipeline == 1);
    CHECK(at.context == 0);
    CHECK(at.tensor == 1);
}

TEST_CASE("a mesh: the groups of a rank differ from it on one axis") {
    run_ranks(12, [](Communicator& ranks) {
        const Mesh mesh = make_mesh(ranks, uneven_mesh);
        CHECK(mesh.data->size() == 2);
        CHECK(mesh.pipeline->size() == 3);
        CHECK(mesh.context->size() == 1);
        CHECK(mesh.tensor->size() == 2);
        CHECK(mesh.data->rank() == mesh.at.data);
        CHECK(mesh.pipeline->rank() == mesh.at.pipeline);
        CHECK(mesh.tensor->rank() == mesh.at.tensor);
        double sum = double(ranks.rank());
        mesh.pipeline->all_reduce(std::span(&sum, 1));  // ranks that are 2 apart
        CHECK(sum == 3.0 * double(6 * mesh.at.data + mesh.at.tensor) + 6);
    });
}

TEST_CASE("a mesh: sizes that are not those of the ranks are an error") {
    run_ranks(4, [](Communicator& ranks) {
        CHECK_THROWS_WITH_AS(make_mesh(ranks, {2, 1, 1, 3}),
                             "mesh: 2 x 1 x 1 x 3 (data, pipeline, context, tensor) is not the "
                             "number of ranks, 4",
                             ValueError);
    });
    CHECK_THROWS_WITH_AS(coordinates({2, 1, 1, 3}, 6),
                         "coordinates: rank 6 of a mesh of 6 ranks", ValueError);
}

TEST_CASE("a mesh of four axes: the tensor axis is the fastest, then context and pipeline") {
    const MeshSizes sizes{2, 3, 5, 4};
    std::size_t rank = 0;
    for (const auto& [data, pipeline, context, tensor] : every_index(2, 3, 5, 4)) {
        const MeshCoordinates at = coordinates(sizes, rank);
        const bool is_in_order = at.data == data && at.pipeline == pipeline &&
                                 at.context == context && at.tensor == tensor;
        CHECK_MESSAGE(is_in_order, "the coordinates of rank " << rank);
        CHECK(rank_at(sizes, at) == rank);
        ++rank;
    }
}

TEST_CASE("a mesh: the context group of a rank has its neighbors on the context axis") {
    run_ranks(12, [](Communicator& ranks) {
        const Mesh mesh = make_mesh(ranks, {1, 2, 3, 2});
        CHECK(mesh.context->size() == 3);
        CHECK(mesh.context->rank() == mesh.at.context);
        double sum = double(ranks.rank());
        mesh.context->all_reduce(std::span(&sum, 1));  // ranks that are 2 apart
        CHECK(sum == 3.0 * double(6 * mesh.at.pipeline + mesh.at.tensor) + 6);
    });
}

}  // namespace
