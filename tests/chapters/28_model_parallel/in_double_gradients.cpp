// In double, the gradient of a step on several ranks is that of one process to the last digits.
#include "tests/support/expert_axes.hpp"
#include "tests/support/mesh_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

TEST_CASE("in double, each kind of model parallelism gives the gradient of one process") {
    static_assert(sizeof(Real) == 8);
    check_tensor_parallel(1e-12);
    check_pipeline(1e-12);
    check_pipeline_of_tensor_ranks(1e-12);
    check_context_parallel(1e-12);
    check_expert_parallel(1e-12);
}

TEST_CASE("in double, a step on a mesh gives the gradient and the norm of one process") {
    check_meshes_of_8(1e-12);
    check_random_meshes(200, 1e-12);
}
