#include "chapters/24_parallel/tensor_parallel.hpp"

#include "tests/support/check.hpp"
#include "tests/support/parallel_helpers.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("tensor parallelism: the gradient on 1 to 4 ranks equals that of one process") {
    check_tensor_parallel(1e-5);
}

}  // namespace
