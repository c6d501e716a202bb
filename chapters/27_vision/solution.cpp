#include "chapters/27_vision/exercise.hpp"
#include "common/numbers/interpolation.hpp"

namespace exercise {

// Exercise 27.1 — predict: one token for each patch, and the class token. With windows, each of
// the N patches has M² = 49 scores instead of N = 784.
Vector predicted_tokens() { return {197, 768, 785, 16}; }

// Exercise 27.2 — find the bug. Patches are numbered row by row, so that the row of patch n is
// n / columns. Numbered column by column, a square grid has the same weights, because its rows
// and columns are interpolated alike.
Matrix position_weights(const PatchGrid& from, const PatchGrid& to) {
    const Matrix rows = cubic_weights(from.rows, to.rows);
    const Matrix columns = cubic_weights(from.columns, to.columns);
    const std::size_t num_from = from.rows * from.columns, num_to = to.rows * to.columns;
    Matrix weights = xt::zeros<Real>({1 + num_to, 1 + num_from});
    weights(0, 0) = 1;
    for (std::size_t n = 0; n < num_to; ++n)
        for (std::size_t m = 0; m < num_from; ++m)
            weights(1 + n, 1 + m) = rows(n / to.columns, m / from.columns) *
                                    columns(n % to.columns, m % from.columns);
    return weights;
}

// Exercise 27.3 — write window_partition: patchify of the lesson, with patches as pixels.
Tensor3 window_partition(const Tensor4& patches, std::size_t window_size) {
    const auto [B, rows, columns, C] = dims(patches);
    const std::size_t M = window_size;
    require(M > 0 && rows % M == 0 && columns % M == 0,
            "window_partition: windows of {0} x {0} patches do not divide {1} x {2}", M, rows,
            columns);
    const xt::xtensor<Real, 6> by_row =  // (B, window rows, M, window columns, M, C)
        reshape(patches, {B, rows / M, M, columns / M, M, C});
    const xt::xtensor<Real, 6> by_window =  // (B, window rows, window columns, M, M, C)
        xt::transpose(by_row, {0, 1, 3, 2, 4, 5});
    return reshape(by_window, {B * (rows / M) * (columns / M), M * M, C});
}

}  // namespace exercise
