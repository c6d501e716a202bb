#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"

namespace exercise {

// Exercise 7.1 — one token at a time: the mean runs over its C numbers.
Tensor3 normalized_tokens(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    Tensor3 result = hidden_states;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t) {
            Real squares = 0;
            for (std::size_t c = 0; c < width; ++c)
                squares += hidden_states(b, t, c) * hidden_states(b, t, c);
            const Real rms = std::sqrt(squares / static_cast<Real>(width) + eps);
            for (std::size_t c = 0; c < width; ++c) result(b, t, c) /= rms;
        }
    return result;
}

// Exercise 7.2 — eps is added to the mean square, before the root is taken.
Matrix rms_with_eps(const Matrix& rows, Real eps) {
    const auto [count, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < count; ++n) {
        Real squares = 0;
        for (std::size_t c = 0; c < width; ++c) squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(squares / static_cast<Real>(width) + eps);
        for (std::size_t c = 0; c < width; ++c) result(n, c) = rows(n, c) / rms;
    }
    return result;
}

// Exercise 7.3 — the mean of the squares, not their sum. With sqrt(squares / width + eps) it is
// 7.2's function.
Matrix rms_by_norm(const Matrix& rows, Real eps) { return rms_with_eps(rows, eps); }

// Exercise 7.4 — a norm describes the numbers it has. It does not estimate from a sample:
// divide by width, not by width - 1, and it is 7.2's function once more.
Matrix unit_variance(const Matrix& centred_rows, Real eps) {
    return rms_with_eps(centred_rows, eps);
}

// Exercise 7.5 — auto keeps a recipe: means(n) was computed anew from the numbers that had been
// changed already. A named type computes once.
Matrix centred(const Matrix& rows) {
    Matrix result = rows;
    const Vector means = xt::mean<Real>(result, {1});
    for (std::size_t n = 0; n < result.shape(0); ++n)
        for (std::size_t c = 0; c < result.shape(1); ++c) result(n, c) -= means(n);
    return result;
}

// Exercise 7.6 — eps stands outside the root here: a model says where its own belongs.
Matrix original_rms_norm(const Matrix& rows, const Vector& scale, const Vector& offset,
                         double p, Real eps) {
    const auto [count, width] = dims(rows);
    const bool partial = p >= 0 && p <= 1;
    const std::size_t part =
        partial ? std::max<std::size_t>(1, static_cast<std::size_t>(p * double(width))) : width;
    Matrix result = rows;
    for (std::size_t n = 0; n < count; ++n) {
        Real squares = 0;
        for (std::size_t c = 0; c < part; ++c) squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(squares / static_cast<Real>(part));
        for (std::size_t c = 0; c < width; ++c)
            result(n, c) = scale(c) * rows(n, c) / (rms + eps) + offset(c);
    }
    return result;
}

// Exercise 7.7 — centred numbers have the mean 0, and then both norms agree.
Matrix layer_norm_from_rms(const Matrix& rows, const LayerNorm& norm) {
    const RMSNorm rms_norm{norm.weight, norm.eps, norm.bias};
    return rms_norm(centred(rows));
}

// Exercise 7.8 — number c is stretched by weight c, and column c is what reads it.
Linear without_norm_weight(const RMSNorm& norm, const Linear& linear) {
    return {linear.weight * reshape(norm.weight, {1, norm.weight.size()}), linear.bias};
}

}  // namespace exercise
