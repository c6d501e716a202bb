#include "chapters/27_vision/exercise.hpp"

#include "common/numbers/interpolation.hpp"
#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 27.1 — predict: a ViT with patches of 16 x 16 pixels reads a picture of 224 x 224
// pixels and 3 channels. How many tokens do its layers see? How many numbers does a patch have?
// How many tokens has a picture of 448 x 448? Without the class token, how many times fewer
// scores does a head have there if a patch attends only to those of its window of 7 x 7
// patches?
Vector predicted_tokens() {
    TODO("predicted_tokens");
    // return {?, ?, ?, ?};
}

// Exercise 27.2 — find the bug. For pictures that are twice as high and twice as wide, the
// accuracy is good; for pictures that are only twice as wide, it is not.
Matrix position_weights(const PatchGrid& from, const PatchGrid& to) {
    const Matrix rows = cubic_weights(from.rows, to.rows);
    const Matrix columns = cubic_weights(from.columns, to.columns);
    const std::size_t num_from = from.rows * from.columns, num_to = to.rows * to.columns;
    Matrix weights = xt::zeros<Real>({1 + num_to, 1 + num_from});
    weights(0, 0) = 1;
    for (std::size_t n = 0; n < num_to; ++n)
        for (std::size_t m = 0; m < num_from; ++m)
            weights(1 + n, 1 + m) =
                rows(n % to.rows, m % from.rows) * columns(n / to.rows, m / from.rows);
    return weights;
}

// Exercise 27.3 — write window_partition: how do the patches of a window become one text?
Tensor3 window_partition([[maybe_unused]] const Tensor4& patches,
                         [[maybe_unused]] std::size_t window_size) {
    TODO("window_partition");
}

}  // namespace exercise
