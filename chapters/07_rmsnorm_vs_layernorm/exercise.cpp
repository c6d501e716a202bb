#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 7.1 — find the bug. In a model with this norm, the output of the first token changes
// when the last token changes, although the causal mask is right.
Tensor3 normalized_tokens(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    Tensor3 result = hidden_states;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t c = 0; c < width; ++c) {
            Real sum_of_squares = 0;
            for (std::size_t t = 0; t < seq_len; ++t)
                sum_of_squares += hidden_states(b, t, c) * hidden_states(b, t, c);
            const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(seq_len) + eps);
            for (std::size_t t = 0; t < seq_len; ++t) result(b, t, c) /= rms;
        }
    return result;
}

// Exercise 7.2 — find the bug. The result is right to five digits for most rows. For rows of
// very small values it is too large by a factor of up to 316.
Matrix rms_norm_of_rows(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c) sum_of_squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(width)) + eps;
        for (std::size_t c = 0; c < width; ++c) result(n, c) = rows(n, c) / rms;
    }
    return result;
}

// Exercise 7.3 — find the bug. The code follows a formula with ‖x‖, the Euclidean norm of x.
// The direction of the result is right, its scale is not.
Matrix rms_norm_from_formula(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c) sum_of_squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(sum_of_squares + eps);
        for (std::size_t c = 0; c < width; ++c) result(n, c) = rows(n, c) / rms;
    }
    return result;
}

// Exercise 7.4 — find the bug. This is the second half of LayerNorm: the mean of each row is 0
// already. For rows of 4096 features the error is hard to see.
Matrix unit_variance(const Matrix& centered_rows, Real eps) {
    const auto [num_rows, width] = dims(centered_rows);
    Matrix result = centered_rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c)
            sum_of_squares += centered_rows(n, c) * centered_rows(n, c);
        const Real deviation = std::sqrt(sum_of_squares / static_cast<Real>(width - 1) + eps);
        for (std::size_t c = 0; c < width; ++c) result(n, c) /= deviation;
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
