#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 7.1 — find the bug. With this norm in a model, the first token's output changes when
// the last token does, mask or no mask.
Tensor3 normalized_tokens(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    Tensor3 result = hidden_states;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t c = 0; c < width; ++c) {
            Real squares = 0;
            for (std::size_t t = 0; t < seq_len; ++t)
                squares += hidden_states(b, t, c) * hidden_states(b, t, c);
            const Real rms = std::sqrt(squares / static_cast<Real>(seq_len) + eps);
            for (std::size_t t = 0; t < seq_len; ++t) result(b, t, c) /= rms;
        }
    return result;
}

// Exercise 7.2 — find the bug. Most rows come out right to five digits. Rows of very small
// numbers come out up to three hundred times too large.
Matrix rms_with_eps(const Matrix& rows, Real eps) {
    const auto [count, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < count; ++n) {
        Real squares = 0;
        for (std::size_t c = 0; c < width; ++c) squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(squares / static_cast<Real>(width)) + eps;
        for (std::size_t c = 0; c < width; ++c) result(n, c) = rows(n, c) / rms;
    }
    return result;
}

// Exercise 7.3 — find the bug. It was written from a formula on a slide, with ‖x‖ for the
// length of a vector. The direction is right.
Matrix rms_by_norm(const Matrix& rows, Real eps) {
    const auto [count, width] = dims(rows);
    Matrix result = rows;
    for (std::size_t n = 0; n < count; ++n) {
        Real squares = 0;
        for (std::size_t c = 0; c < width; ++c) squares += rows(n, c) * rows(n, c);
        const Real rms = std::sqrt(squares + eps);
        for (std::size_t c = 0; c < width; ++c) result(n, c) = rows(n, c) / rms;
    }
    return result;
}

// Exercise 7.4 — find the bug. The second half of LayerNorm: it gets rows whose mean is 0
// already. With rows of 4096 numbers nobody notices.
Matrix unit_variance(const Matrix& centred_rows, Real eps) {
    const auto [count, width] = dims(centred_rows);
    Matrix result = centred_rows;
    for (std::size_t n = 0; n < count; ++n) {
        Real squares = 0;
        for (std::size_t c = 0; c < width; ++c)
            squares += centred_rows(n, c) * centred_rows(n, c);
        const Real deviation = std::sqrt(squares / static_cast<Real>(width - 1) + eps);
        for (std::size_t c = 0; c < width; ++c) result(n, c) /= deviation;
    }
    return result;
}

// Exercise 7.5 — find the bug. Every formula here is right. The first number of each row is,
// too. (Exercise 7.7 needs this function.)
Matrix centred(const Matrix& rows) {
    Matrix result = rows;
    const auto means = xt::mean<Real>(result, {1});
    for (std::size_t n = 0; n < result.shape(0); ++n)
        for (std::size_t c = 0; c < result.shape(1); ++c) result(n, c) -= means(n);
    return result;
}

// Exercise 7.6 — write original_rms_norm: scale * x / (rms + eps) + offset. If 0 <= p <= 1, rms
// is the root mean square of the first C·p numbers, rounded down but at least one. Otherwise of
// all.
Matrix original_rms_norm([[maybe_unused]] const Matrix& rows,
                         [[maybe_unused]] const Vector& scale,
                         [[maybe_unused]] const Vector& offset, [[maybe_unused]] double p,
                         [[maybe_unused]] Real eps) {
    TODO("original_rms_norm");
}

// Exercise 7.7 — write layer_norm_from_rms: the same numbers as norm(rows), made with
// centred (solve 7.5 first) and RMSNorm alone.
Matrix layer_norm_from_rms([[maybe_unused]] const Matrix& rows,
                           [[maybe_unused]] const LayerNorm& norm) {
    TODO("layer_norm_from_rms");
}

// Exercise 7.8 — write without_norm_weight: fold the weights of a norm into the layer that
// reads it, so that linear(norm(x)) becomes folded(rms_normalize(x)). The norm has no bias.
Linear without_norm_weight([[maybe_unused]] const RMSNorm& norm,
                           [[maybe_unused]] const Linear& linear) {
    TODO("without_norm_weight");
}

}  // namespace exercise
