#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"

namespace exercise {

// Exercise 7.1 — the mean is 4 and each feature is 3 away from it, so the standard deviation is
// 3; the mean of the squares is (1 + 1 + 49 + 49) / 4 = 25, so the RMS is 5.
Matrix predicted_norms() {
    return {{-1, -1, 1, 1}, {Real(0.2), Real(0.2), Real(1.4), Real(1.4)}};
}

// Exercise 7.2 — inside: 0.003 / √(9e-6 + 16e-6) = 0.003 / 0.005. Outside: 0.003 / 0.003016.
Vector predicted_output_rms() { return {Real(0.6), Real(0.995)}; }

// Exercise 7.3 — 64 · 900 = 57600 is below 65504; 64 · 1600 = 102400 is above it and becomes
// infinite, and 40 divided by infinity is 0.
Vector predicted_half_outputs() { return {1, 0}; }

// Exercise 7.4 — if the mean is large, the two terms are almost equal, and their difference
// loses most of its digits (catastrophic cancellation). Subtract the mean first and square
// then.
Matrix unit_variance(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum = 0;
        for (std::size_t c = 0; c < width; ++c) sum += rows(n, c);
        const Real mean = sum / static_cast<Real>(width);
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c)
            sum_of_squares += (rows(n, c) - mean) * (rows(n, c) - mean);
        const Real variance = sum_of_squares / static_cast<Real>(width);
        for (std::size_t c = 0; c < width; ++c)
            result(n, c) = (rows(n, c) - mean) / std::sqrt(variance + eps);
    }
    return result;
}

// Exercise 7.5 — auto holds a lazy expression: each access to means(n) computes the mean again,
// from elements that have already changed. A container type, here Vector, stores the means.
Matrix centered(const Matrix& rows) {
    Matrix result = rows;
    const Vector means = xt::mean<Real>(result, {1});
    for (std::size_t n = 0; n < result.shape(0); ++n)
        for (std::size_t c = 0; c < result.shape(1); ++c) result(n, c) -= means(n);
    return result;
}

// Exercise 7.6 — here eps is outside the square root. Use the form that the model was trained
// with.
Matrix original_rms_norm(const Matrix& rows, const Vector& scale, const Vector& offset,
                         double p, Real eps) {
    const auto [num_rows, width] = dims(rows);
    const bool partial = p >= 0 && p <= 1;
    const std::size_t part =
        partial ? std::max<std::size_t>(1, static_cast<std::size_t>(p * double(width))) : width;
    Matrix result = rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < part; ++c) sum_of_squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(part));
        for (std::size_t c = 0; c < width; ++c)
            result(n, c) = scale(c) * rows(n, c) / (rms + eps) + offset(c);
    }
    return result;
}

// Exercise 7.7 — the mean of a centered row is 0, so its RMS is its standard deviation.
Matrix layer_norm_from_rms(const Matrix& rows, const LayerNorm& norm) {
    const RMSNorm rms_norm{norm.weight, norm.eps, norm.bias};
    return rms_norm(centered(rows));
}

// Exercise 7.8 — feature c is multiplied by weight c, and column c of the matrix multiplies
// feature c.
Linear without_norm_weight(const RMSNorm& norm, const Linear& linear) {
    return {linear.weight * reshape(norm.weight, {1, norm.weight.size()}), linear.bias};
}

}  // namespace exercise
