#include "chapters/27_vision/exercise.hpp"

#include "tests/support/check.hpp"

using namespace exercise;

TEST_CASE("27.1 predict: how many tokens a picture has") {
    const Tensor3 patches = patchify(xt::zeros<Real>({1, 3, 224, 224}), 16),
                  more = patchify(xt::zeros<Real>({1, 3, 448, 448}), 16);
    INFO("a token for each patch, and the class token; without windows, each sees all N");
    CHECK_CLOSE(predicted_tokens(),
                (Vector{Real(1 + patches.shape(1)), Real(patches.shape(2)),
                        Real(1 + more.shape(1)), Real(more.shape(1)) / (7 * 7)}),
                0);
}

TEST_CASE("27.2 find the bug: positions of a wide picture") {
    const PatchGrid square{4, 4}, large{8, 8}, wide{4, 8};
    CHECK_CLOSE(exercise::position_weights(square, large), llm::position_weights(square, large),
                1e-6);
    INFO("which row is patch n in, if a row has as many patches as there are columns?");
    CHECK_CLOSE(exercise::position_weights(square, wide), llm::position_weights(square, wide),
                1e-6);
    CHECK_CLOSE(exercise::position_weights(wide, square), llm::position_weights(wide, square),
                1e-6);
}

TEST_CASE("27.3 write window_partition") {
    // B, rows, columns, M and C all differ. A number says where it comes from.
    Tensor4 patches(std::array<std::size_t, 4>{2, 4, 6, 3});
    for (std::size_t b = 0; b < 2; ++b)
        for (std::size_t row = 0; row < 4; ++row)
            for (std::size_t column = 0; column < 6; ++column)
                for (std::size_t c = 0; c < 3; ++c)
                    patches(b, row, column, c) = Real(1000 * b + 100 * row + 10 * column + c);
    const Tensor3 windows = window_partition(patches, 2);
    REQUIRE(windows.shape() == std::array<std::size_t, 3>{2 * 2 * 3, 4, 3});
    INFO("window 1 of picture 0 begins at row 0, column 2");
    CHECK(windows(1, 0, 0) == 20);
    INFO("its patch 2 is the first of the second row");
    CHECK(windows(1, 2, 0) == 120);
    INFO("window 5 is the last of the second row of windows");
    CHECK(windows(5, 3, 2) == 352);
    CHECK(windows(6, 0, 1) == 1001);
    CHECK_THROWS_WITH_AS(window_partition(patches, 3),
                         "window_partition: windows of 3 x 3 patches do not divide 4 x 6",
                         ValueError);
}
