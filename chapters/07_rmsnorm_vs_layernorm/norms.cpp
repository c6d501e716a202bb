#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

#include <cmath>

#include "chapters/05_gqa/rms_normalize.hpp"
#include "common/tensors/elementwise.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// The elementwise affine part: feature c of each row times weight c, plus bias c.
Matrix scale_and_shift(const Matrix& rows, const Vector& weight,
                       const std::optional<Vector>& bias) {
    const auto [num_rows, width] = dims(rows);
    require(weight.size() == width, "norm: weights of {} do not match rows of {}",
            weight.shape(), rows.shape());
    Matrix result = rows;  // (N, C)
    for (std::size_t row = 0; row < num_rows; ++row)
        for (std::size_t c = 0; c < width; ++c) result(row, c) *= weight(c);
    if (!bias) return result;
    require(bias->size() == width, "norm: a bias of {} does not match rows of {}",
            bias->shape(), rows.shape());
    for (std::size_t row = 0; row < num_rows; ++row)
        for (std::size_t c = 0; c < width; ++c) result(row, c) += (*bias)(c);
    return result;
}

// Normalizes each token independently: all B*T tokens are rows of one matrix.
Tensor3 normalize_tokens(const auto& norm, const Tensor3& hidden_states) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Matrix rows = reshape(hidden_states, {batch_size * seq_len, width});
    return reshape(norm(rows), {batch_size, seq_len, width});
}

}  // namespace

Matrix layer_normalize(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    const Real n = static_cast<Real>(width);
    const Matrix sums = row_sum(rows);  // (N, 1)
    Matrix normalized = rows;           // (N, C)
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::span<Real> x = view_of(normalized)[row];
        const Real mean = sums(row, 0) / n;
        for (Real& element : x) element -= mean;

        // The biased variance: the mean of the squared deviations from the mean.
        const Real sum_of_squares = dot_product(x, x);
        const Real deviation = std::sqrt(sum_of_squares / n + eps);
        for (Real& element : x) element /= deviation;
    }
    return normalized;
}

Matrix LayerNorm::operator()(const Matrix& rows) const {
    return scale_and_shift(layer_normalize(rows, eps), weight, bias);
}

Tensor3 LayerNorm::operator()(const Tensor3& hidden_states) const {
    return normalize_tokens(*this, hidden_states);
}

Matrix RMSNorm::operator()(const Matrix& rows) const {
    return scale_and_shift(rms_normalize(rows, eps), weight, bias);
}

Tensor3 RMSNorm::operator()(const Tensor3& hidden_states) const {
    return normalize_tokens(*this, hidden_states);
}

LayerNorm make_layer_norm(std::size_t hidden_size, Real eps) {
    const std::array sizes{hidden_size};
    return {xt::ones<Real>(sizes), Vector(xt::zeros<Real>(sizes)), eps};
}

RMSNorm make_rms_norm(std::size_t hidden_size, Real eps) {
    return {xt::ones<Real>(std::array{hidden_size}), eps};
}

std::uint64_t num_parameters(const LayerNorm& norm) {
    return norm.weight.size() + (norm.bias ? norm.bias->size() : 0);
}

std::uint64_t num_parameters(const RMSNorm& norm) {
    return norm.weight.size() + (norm.bias ? norm.bias->size() : 0);
}

RMSNorm gemma_norm(const Vector& stored, Real eps) { return {stored + Real(1), eps}; }

Matrix partial_rms_normalize(const Matrix& rows, double fraction, Real eps) {
    const auto [num_rows, width] = dims(rows);
    require(fraction > 0 && fraction <= 1,
            "partial_rms_normalize: the fraction must be above 0 and at most 1");
    const auto part = static_cast<std::size_t>(fraction * static_cast<double>(width));
    require(part > 0, "partial_rms_normalize: the fraction of {} features is less than one",
            width);

    Matrix normalized = rows;  // (N, C)
    for (std::size_t row = 0; row < num_rows; ++row) {
        // Estimate the RMS from the first features only, then divide all of them by it.
        const std::span<const Real> first = view_of(rows)[row].first(part);
        const Real sum_of_squares = dot_product(first, first);
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(part) + eps);
        for (std::size_t c = 0; c < width; ++c) normalized(row, c) = rows(row, c) / rms;
    }
    return normalized;
}

}  // namespace llm
