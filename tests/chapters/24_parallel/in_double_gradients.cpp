// In double, the gradient of a step on several ranks is that of one process to the last digits.
#include "tests/support/parallel_helpers.hpp"

using namespace llm;
using namespace llm::parallel_tests;

TEST_CASE("in double, the gradient on 1 to 4 ranks equals that of one process, in each stage") {
    static_assert(sizeof(Real) == 8);
    check_gradients(1e-12);
}
