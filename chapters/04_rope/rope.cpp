#include "chapters/04_rope/rope.hpp"

#include <cmath>
#include <complex>

namespace llm {
namespace {

// The two features of a head that are rotated together.
struct Pair {
    std::size_t first, second;
};

// The only difference between the two layouts.
Pair pair_of(std::size_t i, std::size_t head_dim, RopeLayout layout) {
    if (layout == RopeLayout::interleaved) return {2 * i, 2 * i + 1};
    return {i, i + head_dim / 2};
}

void check_shapes(const Tensor4& states, const RotaryTable& table,
                  const IdMatrix& position_ids) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    const auto [num_positions, num_pairs] = dims(table.cos);
    require(2 * num_pairs == head_dim && table.sin.shape() == table.cos.shape(),
            "rope: tables of {} and {} do not match states of {}", table.cos.shape(),
            table.sin.shape(), states.shape());
    require(position_ids.shape() == std::array{batch_size, seq_len},
            "rope: position ids of {} do not match states of {}", position_ids.shape(),
            states.shape());
    for (const Id position : position_ids)
        require(position >= 0 && position < static_cast<Id>(num_positions),
                "rope: position {} lies outside a table of {} positions", position,
                num_positions);
}

// Partial rotary: the first features of each head, as if it had no others.
Tensor4 rotate_first_features(const Tensor4& states, const RotaryTable& table,
                              const IdMatrix& position_ids, RopeLayout layout) {
    const std::size_t num_rotated = 2 * table.cos.shape(1);
    require(num_rotated + table.num_unrotated == states.shape(3),
            "rope: {} rotated and {} other features do not match states of {}", num_rotated,
            table.num_unrotated, states.shape());
    const auto first_features = [&](auto& tensor) {
        return xt::view(tensor, xt::all(), xt::all(), xt::all(), xt::range(0, num_rotated));
    };
    const Tensor4 first = first_features(states);
    Tensor4 result = states;
    first_features(result) =
        apply_rotary_embedding(first, {table.cos, table.sin}, position_ids, layout);
    return result;
}

}  // namespace

Vector inverse_frequencies(std::size_t head_dim, Real rope_theta) {
    require(head_dim > 0 && head_dim % 2 == 0,
            "rope: head_dim must be positive and even, not {}", head_dim);
    Vector frequencies = xt::zeros<Real>({head_dim / 2});  // (D/2)
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
        const Real exponent = static_cast<Real>(2 * i) / static_cast<Real>(head_dim);
        frequencies(i) = 1 / std::pow(rope_theta, exponent);
    }
    return frequencies;
}

RotaryTable make_rotary_table(const Vector& inverse_frequencies, std::size_t num_positions) {
    const Matrix positions = reshape(Vector(xt::arange<Real>(static_cast<Real>(num_positions))),
                                     {num_positions, 1});  // (P, 1)
    const Matrix row =
        reshape(inverse_frequencies, {1, inverse_frequencies.size()});  // (1, D/2)
    const Matrix angles = positions * row;                              // (P, D/2)
    return {xt::cos(angles), xt::sin(angles)};
}

Tensor4 apply_rotary_embedding(const Tensor4& states, const RotaryTable& table,
                               const IdMatrix& position_ids, RopeLayout layout) {
    if (table.num_unrotated > 0)
        return rotate_first_features(states, table, position_ids, layout);
    check_shapes(states, table, position_ids);
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    Tensor4 rotated = states;  // (B, H, T, D)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)
            for (std::size_t t = 0; t < seq_len; ++t)
                for (std::size_t i = 0; i < head_dim / 2; ++i) {
                    const auto [first, second] = pair_of(i, head_dim, layout);
                    const Real x = states(b, h, t, first);
                    const Real y = states(b, h, t, second);
                    const Real cos = table.cos(position_ids(b, t), i);
                    const Real sin = table.sin(position_ids(b, t), i);

                    // Rotate the point (x, y) about the origin.
                    rotated(b, h, t, first) = x * cos - y * sin;
                    rotated(b, h, t, second) = x * sin + y * cos;
                }
    return rotated;
}

Tensor4 rotate_half(const Tensor4& states) {
    const std::size_t head_dim = states.shape(3), half = head_dim / 2;
    require(head_dim % 2 == 0, "rope: head_dim must be positive and even, not {}", head_dim);
    Tensor4 result = states;  // (B, H, T, D)
    const auto halves = [&](auto& tensor, std::size_t begin) {
        return xt::view(tensor, xt::all(), xt::all(), xt::all(),
                        xt::range(begin, begin + half));
    };
    halves(result, 0) = -halves(states, half);
    halves(result, half) = halves(states, 0);
    return result;
}

Matrix repeat_halves(const Matrix& half_table) {
    return xt::concatenate(xt::xtuple(half_table, half_table), 1);  // (P, D)
}

Tensor4 apply_rotary_embedding_complex(const Tensor4& states, const RotaryTable& table,
                                       const IdMatrix& position_ids) {
    check_shapes(states, table, position_ids);
    Tensor4 rotated = states;  // (B, H, T, D)
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)
            for (std::size_t t = 0; t < seq_len; ++t)
                for (std::size_t i = 0; i < head_dim / 2; ++i) {
                    const std::complex<Real> pair(states(b, h, t, 2 * i),
                                                  states(b, h, t, 2 * i + 1));
                    const std::complex<Real> rotation(table.cos(position_ids(b, t), i),
                                                      table.sin(position_ids(b, t), i));
                    const std::complex<Real> product = pair * rotation;
                    rotated(b, h, t, 2 * i) = product.real();
                    rotated(b, h, t, 2 * i + 1) = product.imag();
                }
    return rotated;
}

std::size_t interleaved_index(std::size_t index, std::size_t head_dim) {
    const std::size_t d = index % head_dim, half = head_dim / 2;
    return index - d + (d < half ? 2 * d : 2 * (d - half) + 1);
}

std::size_t split_half_index(std::size_t index, std::size_t head_dim) {
    const std::size_t d = index % head_dim;  // the first or second feature of pair d / 2
    return index - d + d / 2 + (d % 2) * (head_dim / 2);
}

Vector interleaved_to_split_half(const Vector& head_weight) {
    const std::size_t head_dim = head_weight.size();
    require(head_dim % 2 == 0, "rope: head_dim must be positive and even, not {}", head_dim);
    Vector reordered = head_weight;  // (D)
    for (std::size_t d = 0; d < head_dim; ++d)
        reordered(d) = head_weight(interleaved_index(d, head_dim));
    return reordered;
}

Linear interleaved_to_split_half(const Linear& projection, std::size_t num_heads) {
    const std::size_t num_rows = projection.weight.shape(0);
    require(num_heads > 0 && num_rows % (2 * num_heads) == 0,
            "rope: a weight of {} cannot be split into {} heads with an even head_dim",
            projection.weight.shape(), num_heads);
    const std::size_t head_dim = num_rows / num_heads;

    Linear reordered = projection;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::size_t source = interleaved_index(row, head_dim);
        xt::view(reordered.weight, row) = xt::view(projection.weight, source);
        if (projection.bias) (*reordered.bias)(row) = (*projection.bias)(source);
    }
    return reordered;
}

Matrix sinusoidal_positions(std::size_t seq_len, std::size_t hidden_size) {
    const Vector frequencies = inverse_frequencies(hidden_size, 10000);  // (C/2)
    const RotaryTable table = make_rotary_table(frequencies, seq_len);   // (T, C/2)
    Matrix positions = xt::zeros<Real>({seq_len, hidden_size});          // (T, C)
    xt::view(positions, xt::all(), xt::range(0, hidden_size, 2)) = table.sin;
    xt::view(positions, xt::all(), xt::range(1, hidden_size, 2)) = table.cos;
    return positions;
}

}  // namespace llm
