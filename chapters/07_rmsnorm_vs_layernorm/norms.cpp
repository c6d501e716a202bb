#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

#include <bit>
#include <cmath>

namespace llm {
namespace {

// Number c of every row times weight c, plus bias c.
Matrix stretched(const Matrix& rows, const Vector& weight, const std::optional<Vector>& bias) {
    const auto [count, width] = dims(rows);
    require(weight.size() == width, "norm: weights of {} do not fit rows of {}", weight.shape(),
            rows.shape());
    Matrix result = rows;  // (N, C)
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t c = 0; c < width; ++c) result(row, c) *= weight(c);
    if (!bias) return result;
    require(bias->size() == width, "norm: a bias of {} does not fit rows of {}", bias->shape(),
            rows.shape());
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t c = 0; c < width; ++c) result(row, c) += (*bias)(c);
    return result;
}

// All B*T tokens are rows: a norm knows nothing of sequences.
Tensor3 token_by_token(const auto& norm, const Tensor3& hidden_states) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Matrix rows = reshape(hidden_states, {batch_size * seq_len, width});
    return reshape(norm(rows), {batch_size, seq_len, width});
}

}  // namespace

Matrix layer_normalize(const Matrix& rows, Real eps) {
    const auto [count, width] = dims(rows);
    const Real n = static_cast<Real>(width);
    Matrix normalized = rows;  // (N, C)
    for (std::size_t row = 0; row < count; ++row) {
        // Where is the middle?
        Real sum = 0;
        for (std::size_t c = 0; c < width; ++c) sum += rows(row, c);
        const Real mean = sum / n;

        // How far from it are the numbers, typically?
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < width; ++c)
            sum_of_squares += (rows(row, c) - mean) * (rows(row, c) - mean);
        const Real deviation = std::sqrt(sum_of_squares / n + eps);

        for (std::size_t c = 0; c < width; ++c)
            normalized(row, c) = (rows(row, c) - mean) / deviation;
    }
    return normalized;
}

Matrix LayerNorm::operator()(const Matrix& rows) const {
    return stretched(layer_normalize(rows, eps), weight, bias);
}

Tensor3 LayerNorm::operator()(const Tensor3& hidden_states) const {
    return token_by_token(*this, hidden_states);
}

Matrix RMSNorm::operator()(const Matrix& rows) const {
    return stretched(rms_normalize(rows, eps), weight, bias);
}

Tensor3 RMSNorm::operator()(const Tensor3& hidden_states) const {
    return token_by_token(*this, hidden_states);
}

LayerNorm make_layer_norm(std::size_t hidden_size, Real eps) {
    const std::array sizes{hidden_size};
    return {xt::ones<Real>(sizes), Vector(xt::zeros<Real>(sizes)), eps};
}

RMSNorm make_rms_norm(std::size_t hidden_size, Real eps) {
    return {xt::ones<Real>(std::array{hidden_size}), eps};
}

std::size_t num_parameters(const LayerNorm& norm) {
    return norm.weight.size() + (norm.bias ? norm.bias->size() : 0);
}

std::size_t num_parameters(const RMSNorm& norm) {
    return norm.weight.size() + (norm.bias ? norm.bias->size() : 0);
}

RMSNorm gemma_norm(const Vector& stored, Real eps) { return {stored + Real(1), eps}; }

Matrix partial_rms_normalize(const Matrix& rows, double share, Real eps) {
    const auto [count, width] = dims(rows);
    require(share > 0 && share <= 1,
            "partial_rms_normalize: the share must be above 0 and at most 1");
    const auto part = static_cast<std::size_t>(share * static_cast<double>(width));
    require(part > 0, "partial_rms_normalize: the share of {} numbers is less than one", width);

    Matrix normalized = rows;  // (N, C)
    for (std::size_t row = 0; row < count; ++row) {
        // Look at the first numbers only ...
        Real sum_of_squares = 0;
        for (std::size_t c = 0; c < part; ++c) sum_of_squares += rows(row, c) * rows(row, c);
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(part) + eps);

        // ... and divide all.
        for (std::size_t c = 0; c < width; ++c) normalized(row, c) = rows(row, c) / rms;
    }
    return normalized;
}

HalfMatrix to_half(const Matrix& rows) { return rows; }

Matrix to_float(const HalfMatrix& rows) { return rows; }

HalfMatrix rms_norm_in_half(const HalfMatrix& rows, const HalfVector& weight, Real eps) {
    const auto [count, width] = dims(rows);
    require(weight.size() == width, "norm: weights of {} do not fit rows of {}", weight.shape(),
            rows.shape());
    HalfMatrix result = rows;  // (N, C)
    for (std::size_t row = 0; row < count; ++row) {
        // Each named result is rounded to 16 bits. A square above 65504 becomes infinite.
        Half sum_of_squares(0);
        for (std::size_t c = 0; c < width; ++c) {
            const Half square = rows(row, c) * rows(row, c);
            sum_of_squares += square;
        }
        const Half mean_square = sum_of_squares / Half(static_cast<float>(width));
        const Half padded = mean_square + Half(eps);
        const Half rms = sqrt(padded);
        for (std::size_t c = 0; c < width; ++c) {
            const Half normalized = rows(row, c) / rms;
            result(row, c) = normalized * weight(c);
        }
    }
    return result;
}

HalfMatrix rms_norm_upcast(const HalfMatrix& rows, const HalfVector& weight, Real eps,
                           CastBack cast_back) {
    const auto [count, width] = dims(rows);
    require(weight.size() == width, "norm: weights of {} do not fit rows of {}", weight.shape(),
            rows.shape());
    const Matrix normalized = rms_normalize(to_float(rows), eps);  // (N, C), 32 bits
    HalfMatrix result = rows;                                      // (N, C)
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t c = 0; c < width; ++c) {
            // Round once, at the end, or once more on the way.
            const Real exact = normalized(row, c);
            const Half rounded(exact);
            result(row, c) = cast_back == CastBack::before_weight
                                 ? Half(rounded * weight(c))
                                 : Half(exact * static_cast<Real>(weight(c)));
        }
    return result;
}

float to_bfloat16(float number) {
    if (std::isnan(number)) return number;
    const auto bits = std::bit_cast<std::uint32_t>(number);

    // Add just under half of the last bit that stays, or half if that makes it even; cut off.
    const std::uint32_t last_kept_bit = (bits >> 16) & 1;
    return std::bit_cast<float>((bits + 0x7FFF + last_kept_bit) & 0xFFFF0000);
}

}  // namespace llm
