#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 7.1 — predict: the outputs of LayerNorm (row 0) and RMSNorm (row 1), without weights
// and with eps = 0, for the token {1, 1, 7, 7}.
Matrix predicted_norms() {
    TODO("predicted_norms");
    // return {{?, ?, ?, ?}, {?, ?, ?, ?}};
}

// Exercise 7.2 — predict: a token has an RMS of 0.003, and eps is 1.6e-5. What is the RMS of
// the output if eps is added inside the square root, and what if it is added outside?
Vector predicted_output_rms() {
    TODO("predicted_output_rms");
    // return {?, ?};
}

// Exercise 7.3 — predict: RMSNorm in float16 throughout, without an upcast. The first token has
// 64 features that are all 30, the second 64 features that are all 40. What is each feature of
// the output?
Vector predicted_half_outputs() {
    TODO("predicted_half_outputs");
    // return {?, ?};
}

// Exercise 7.4 — find the bug. The variance is the mean of the squares minus the square of the
// mean. The result is right for most rows, and wrong or NaN for some.
Matrix unit_variance(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum = 0, sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c) {
            sum += rows(n, c);
            sum_of_squares += rows(n, c) * rows(n, c);
        }
        const Real mean = sum / static_cast<Real>(width);
        const Real variance = sum_of_squares / static_cast<Real>(width) - mean * mean;
        for (std::size_t c = 0; c < width; ++c)
            result(n, c) = (rows(n, c) - mean) / std::sqrt(variance + eps);
    }
    return result;
}

// Exercise 7.5 — find the bug. All formulas are right, and so is the first element of each row.
// (Exercise 7.7 uses this function.)
Matrix centered(const Matrix& rows) {
    Matrix result = rows;
    const auto means = xt::mean<Real>(result, {1});
    for (std::size_t n = 0; n < result.shape(0); ++n)
        for (std::size_t c = 0; c < result.shape(1); ++c) result(n, c) -= means(n);
    return result;
}

// Exercise 7.6 — write original_rms_norm: scale * x / (rms + eps) + offset. If 0 <= p <= 1, rms
// is the root mean square of the first C·p features, rounded down but at least one. Otherwise
// it is that of all features.
Matrix original_rms_norm([[maybe_unused]] const Matrix& rows,
                         [[maybe_unused]] const Vector& scale,
                         [[maybe_unused]] const Vector& offset, [[maybe_unused]] double p,
                         [[maybe_unused]] Real eps) {
    TODO("original_rms_norm");
}

// Exercise 7.7 — write layer_norm_from_rms: the result of norm(rows), computed with centered
// (solve 7.5 first) and RMSNorm.
Matrix layer_norm_from_rms([[maybe_unused]] const Matrix& rows,
                           [[maybe_unused]] const LayerNorm& norm) {
    TODO("layer_norm_from_rms");
}

// Exercise 7.8 — write without_norm_weight: fold the weight of a norm into the linear layer
// after it, so that linear(norm(x)) equals folded(rms_normalize(x)). The norm has no bias.
Linear without_norm_weight([[maybe_unused]] const RMSNorm& norm,
                           [[maybe_unused]] const Linear& linear) {
    TODO("without_norm_weight");
}

}  // namespace exercise
