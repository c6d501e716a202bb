#include "chapters/04_rope/rope.hpp"

#include <cmath>
#include <complex>
#include <numbers>

namespace llm {
namespace {

// The two numbers of a head that turn together as pair i. This is all that the layouts
// disagree on.
struct Pair {
    std::size_t first, second;
};
Pair split_half(std::size_t i, std::size_t head_dim) { return {i, i + head_dim / 2}; }
Pair interleaved(std::size_t i, std::size_t) { return {2 * i, 2 * i + 1}; }

// Where number "place" of a head with split halves stands in an interleaved one: even places
// first, then the odd ones.
std::size_t interleaved_place(std::size_t place, std::size_t head_dim) {
    const std::size_t half = head_dim / 2;
    return place < half ? 2 * place : 2 * (place - half) + 1;
}

void check_fit(const Tensor4& states, const RotaryTable& table, const IdMatrix& positions) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    const auto [num_positions, num_pairs] = dims(table.cos);
    require(2 * num_pairs == head_dim && table.sin.shape() == table.cos.shape(),
            "rope: tables of {} and {} do not fit states of {}", table.cos.shape(),
            table.sin.shape(), states.shape());
    require(positions.shape() == std::array{batch_size, seq_len},
            "rope: position ids of {} do not fit states of {}", positions.shape(),
            states.shape());
    for (const Id position : positions)
        require(position >= 0 && position < static_cast<Id>(num_positions),
                "rope: position {} lies outside a table of {} positions", position,
                num_positions);
}

Tensor4 rotate(const Tensor4& states, const RotaryTable& table, const IdMatrix& positions,
               Pair (*pair)(std::size_t i, std::size_t head_dim)) {
    check_fit(states, table, positions);
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    Tensor4 rotated = states;  // (B, H, T, D)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)
            for (std::size_t t = 0; t < seq_len; ++t)
                for (std::size_t i = 0; i < head_dim / 2; ++i) {
                    const auto [first, second] = pair(i, head_dim);
                    const Real x = states(b, h, t, first);
                    const Real y = states(b, h, t, second);
                    const Real cos = table.cos(positions(b, t), i);
                    const Real sin = table.sin(positions(b, t), i);

                    // Turn the point (x, y) about the origin.
                    rotated(b, h, t, first) = x * cos - y * sin;
                    rotated(b, h, t, second) = x * sin + y * cos;
                }
    return rotated;
}

}  // namespace

Vector inverse_frequencies(std::size_t head_dim, Real rope_theta) {
    require(head_dim > 0 && head_dim % 2 == 0,
            "rope: a head of {} numbers cannot be cut into pairs", head_dim);
    Vector frequencies = xt::zeros<Real>({head_dim / 2});  // (D/2)
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
        const Real exponent = static_cast<Real>(2 * i) / static_cast<Real>(head_dim);
        frequencies(i) = 1 / std::pow(rope_theta, exponent);
    }
    return frequencies;
}

RotaryTable make_rotary_table(const Vector& frequencies, std::size_t num_positions) {
    const Matrix positions = reshape(Vector(xt::arange<Real>(static_cast<Real>(num_positions))),
                                     {num_positions, 1});              // (P, 1)
    const Matrix row = reshape(frequencies, {1, frequencies.size()});  // (1, D/2)
    const Matrix angles = positions * row;                             // (P, D/2)
    return {xt::cos(angles), xt::sin(angles)};
}

Tensor4 rotate_split_half(const Tensor4& states, const RotaryTable& table,
                          const IdMatrix& positions) {
    return rotate(states, table, positions, split_half);
}

Tensor4 rotate_interleaved(const Tensor4& states, const RotaryTable& table,
                           const IdMatrix& positions) {
    return rotate(states, table, positions, interleaved);
}

Tensor4 rotate_half(const Tensor4& states) {
    const std::size_t head_dim = states.shape(3), half = head_dim / 2;
    require(head_dim % 2 == 0, "rope: a head of {} numbers cannot be cut into pairs", head_dim);
    Tensor4 turned = states;  // (B, H, T, D)
    const auto halves = [&](auto& tensor, std::size_t begin) {
        return xt::view(tensor, xt::all(), xt::all(), xt::all(),
                        xt::range(begin, begin + half));
    };
    halves(turned, 0) = -halves(states, half);
    halves(turned, half) = halves(states, 0);
    return turned;
}

Matrix repeat_halves(const Matrix& half_table) {
    return xt::concatenate(xt::xtuple(half_table, half_table), 1);  // (P, D)
}

Tensor4 rotate_complex(const Tensor4& states, const RotaryTable& table,
                       const IdMatrix& positions) {
    check_fit(states, table, positions);
    Tensor4 rotated = states;  // (B, H, T, D)
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)
            for (std::size_t t = 0; t < seq_len; ++t)
                for (std::size_t i = 0; i < head_dim / 2; ++i) {
                    const std::complex<Real> number(states(b, h, t, 2 * i),
                                                    states(b, h, t, 2 * i + 1));
                    const std::complex<Real> turn(table.cos(positions(b, t), i),
                                                  table.sin(positions(b, t), i));
                    const std::complex<Real> product = number * turn;
                    rotated(b, h, t, 2 * i) = product.real();
                    rotated(b, h, t, 2 * i + 1) = product.imag();
                }
    return rotated;
}

Vector interleaved_to_split_half(const Vector& head_weight) {
    const std::size_t head_dim = head_weight.size();
    require(head_dim % 2 == 0, "rope: a head of {} numbers cannot be cut into pairs", head_dim);
    Vector reordered = head_weight;  // (D)
    for (std::size_t place = 0; place < head_dim; ++place)
        reordered(place) = head_weight(interleaved_place(place, head_dim));
    return reordered;
}

Linear interleaved_to_split_half(const Linear& projection, std::size_t num_heads) {
    const std::size_t num_rows = projection.weight.shape(0);
    require(num_heads > 0 && num_rows % (2 * num_heads) == 0,
            "rope: a weight of {} cannot be cut into {} heads of pairs",
            projection.weight.shape(), num_heads);
    const std::size_t head_dim = num_rows / num_heads;

    Linear reordered = projection;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::size_t place = row % head_dim;  // in its head, which begins at row - place
        const std::size_t source = row - place + interleaved_place(place, head_dim);
        xt::view(reordered.weight, row) = xt::view(projection.weight, source);
        if (projection.bias) (*reordered.bias)(row) = (*projection.bias)(source);
    }
    return reordered;
}

Vector interpolate_positions(const Vector& frequencies, Real factor) {
    return frequencies / factor;
}

Real ntk_theta(Real rope_theta, Real factor, std::size_t head_dim) {
    require(head_dim > 2, "rope: NTK scaling needs more than one pair, a head has {} numbers",
            head_dim);
    const Real dim = static_cast<Real>(head_dim);
    return rope_theta * std::pow(factor, dim / (dim - 2));
}

Vector scale_like_llama3(const Vector& frequencies, const Llama3Scaling& scaling) {
    require(scaling.low_freq_factor < scaling.high_freq_factor,
            "rope: low_freq_factor must be less than high_freq_factor");
    Vector scaled = frequencies;  // (D/2)
    for (Real& frequency : scaled) {
        // How often does this pair turn within the context the model was trained on?
        const Real wavelength = 2 * std::numbers::pi_v<Real> / frequency;
        const Real turns = scaling.original_max_position_embeddings / wavelength;

        // Blend: 0 for pairs that hardly turned once, 1 for pairs that turned many times.
        const Real blend = (turns - scaling.low_freq_factor) /
                           (scaling.high_freq_factor - scaling.low_freq_factor);
        const Real kept = std::clamp(blend, Real(0), Real(1));
        frequency = (1 - kept) * frequency / scaling.factor + kept * frequency;
    }
    return scaled;
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
