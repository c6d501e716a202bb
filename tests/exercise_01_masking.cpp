#include "chapters/01_masking/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

TEST_CASE("1.1 find the bug: a mask made by a product") {
    INFO("0 on and below the diagonal, -inf above it");
    CHECK_CLOSE(mask_by_product(3), causal_mask(3, 3), 0);
}

TEST_CASE("1.2 find the bug: a mask made by loops") {
    INFO("each token attends to itself and to all tokens before it");
    CHECK_CLOSE(mask_by_loops(4), causal_mask(4, 4), 0);
}

TEST_CASE("1.3 find the bug: a mask for new queries") {
    INFO("the newest query attends to every key");
    CHECK_CLOSE(mask_for_new_queries(1, 5), causal_mask(1, 5), 0);
    CHECK_CLOSE(mask_for_new_queries(3, 5), causal_mask(3, 5), 0);
    CHECK_CLOSE(mask_for_new_queries(4, 4), causal_mask(4, 4), 0);
}

TEST_CASE("1.4 write sliding_window_mask") {
    const Real inf = infinity;
    INFO("a token attends to itself and to the window - 1 tokens before it");
    CHECK_CLOSE(
        sliding_window_mask(4, 2),
        (Matrix{
            {0, -inf, -inf, -inf}, {0, 0, -inf, -inf}, {-inf, 0, 0, -inf}, {-inf, -inf, 0, 0}}),
        0);
    CHECK_CLOSE(sliding_window_mask(3, 1),
                (Matrix{{0, -inf, -inf}, {-inf, 0, -inf}, {-inf, -inf, 0}}), 0);
    INFO("a window of at least seq_len tokens gives the causal mask");
    CHECK_CLOSE(sliding_window_mask(5, 9), causal_mask(5, 5), 0);
}

TEST_CASE("1.5 write prefix_mask") {
    const Real inf = infinity;
    INFO("tokens of the prefix attend to each other, later tokens use causal attention");
    CHECK_CLOSE(prefix_mask(4, 2),
                (Matrix{{0, 0, -inf, -inf}, {0, 0, -inf, -inf}, {0, 0, 0, -inf}, {0, 0, 0, 0}}),
                0);
    CHECK_CLOSE(prefix_mask(5, 0), causal_mask(5, 5), 0);
    CHECK_CLOSE(prefix_mask(3, 3), Matrix(xt::zeros<Real>({3, 3})), 0);
}
