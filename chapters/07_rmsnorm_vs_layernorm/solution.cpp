#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"

namespace exercise {

// Exercise 7.1 — each token is normalized separately: the mean is over its C features.
Tensor3 normalized_tokens(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    Tensor3 result = hidden_states;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t) {
            Real sum_of_squares = 0;
            for (std::size_t c = 0; c < width; ++c)
                sum_of_squares += hidden_states(b, t, c) * hidden_states(b, t, c);
            const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(width) + eps);
            for (std::size_t c = 0; c < width; ++c) result(b, t, c) /= rms;
        }
    return result;
}

// Exercise 7.2 — eps is added to the mean square, inside the square root.
Matrix rms_norm_of_rows(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < num_rows; ++n) {
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c) sum_of_squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(width) + eps);
        for (std::size_t c = 0; c < width; ++c) result(n, c) = rows(n, c) / rms;
    }
    return result;
}

// Exercise 7.3 — the mean of the squares, not their sum. With sqrt(sum_of_squares / width +
// eps) it is the function of 7.2.
Matrix rms_norm_from_formula(const Matrix& rows, Real eps) {
    return rms_norm_of_rows(rows, eps);
}

// Exercise 7.4 — LayerNorm uses the biased variance: divide by width, not by width - 1. For
// centered rows, this is the function of 7.2.
Matrix unit_variance(const Matrix& centered_rows, Real eps) {
    return rms_norm_of_rows(centered_rows, eps);
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
