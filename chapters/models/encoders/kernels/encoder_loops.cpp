#include "chapters/models/encoders/kernels/encoder_loops.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/15_fast/kernels/registers.hpp"

#include <hwy/contrib/math/math-inl.h>

namespace llm::models {
namespace {

Floats constant(Real value) { return hn::Set(floats, value); }

// x Φ(x). With t = 1 / (1 + p |x| / √2), Φ(-|x|) is about exp(-x²/2) times a polynomial in t.
Floats gelu_of(Floats x) {
    const Floats t = hn::Div(
        constant(1),
        hn::MulAdd(hn::Abs(x), constant(Real(0.3275911 / 1.4142135623730951)), constant(1)));
    Floats sum = constant(Real(1.061405429 / 2));
    for (const double coefficient : {-1.453152027, 1.421413741, -0.284496736, 0.254829592})
        sum = hn::MulAdd(sum, t, constant(Real(coefficient / 2)));
    const Floats square = hn::Mul(hn::Mul(x, x), constant(Real(-0.5)));
    const Floats tail = hn::Mul(hn::Mul(sum, t), hn::Exp(floats, square));
    const Floats cdf =
        hn::IfThenElse(hn::Lt(x, hn::Zero(floats)), tail, hn::Sub(constant(1), tail));
    return hn::Mul(x, cdf);
}

// x σ(factor x): factor 1 is SiLU. exp is valid up to 104.
Floats times_sigmoid(Floats x, Floats exponent) {
    const Floats power = hn::Exp(floats, hn::Min(hn::Neg(exponent), constant(88)));
    return hn::Div(x, hn::Add(constant(1), power));
}
Floats silu_of(Floats x) { return times_sigmoid(x, x); }

// (1 + tanh(u)) / 2 = σ(2u), with u = √(2/π) (x + 0.044715 x³).
Floats gelu_tanh_of(Floats x) {
    const Floats cubic = hn::MulAdd(hn::Mul(x, x), constant(Real(0.044715)), constant(1));
    return times_sigmoid(x, hn::Mul(hn::Mul(x, cubic), constant(Real(1.5957691216057308))));
}

// Applies a function of registers. The last ones are computed in a padded copy.
template <class Function>
void for_registers(std::span<Real> values, const Function& function) {
    const std::size_t lanes = hn::Lanes(floats);
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes)
        hn::StoreU(function(load(&values[i])), floats, &values[i]);
    std::array<Real, hn::MaxLanes(floats)> rest{};
    std::copy(values.begin() + std::ptrdiff_t(i), values.end(), rest.begin());
    hn::StoreU(function(load(rest.data())), floats, rest.data());
    std::copy_n(rest.begin(), values.size() - i, values.begin() + std::ptrdiff_t(i));
}

// The sum of (x - shift)^power over a row, for power 1 or 2.
template <int power>
Real sum_of_powers(std::span<const Real> row, Real shift) {
    const std::size_t lanes = hn::Lanes(floats);
    Floats sums = hn::Zero(floats);
    std::size_t i = 0;
    for (; i + lanes <= row.size(); i += lanes) {
        const Floats centered = hn::Sub(load(&row[i]), constant(shift));
        sums = power == 1 ? hn::Add(sums, centered) : hn::MulAdd(centered, centered, sums);
    }
    Real sum = hn::GetLane(hn::SumOfLanes(floats, sums));
    for (; i < row.size(); ++i)
        sum += power == 1 ? row[i] - shift : (row[i] - shift) * (row[i] - shift);
    return sum;
}

}  // namespace

void layer_norm(std::span<const Real> row, std::span<const Real> weight,
                std::span<const Real> bias, Real eps, std::span<Real> output) {
    const Real count = static_cast<Real>(row.size());
    const Real mean = sum_of_powers<1>(row, 0) / count;
    const Real scale = 1 / std::sqrt(sum_of_powers<2>(row, mean) / count + eps);
    for (std::size_t i = 0; i < row.size(); ++i)
        output[i] = (row[i] - mean) * scale * weight[i];
    for (std::size_t i = 0; i < bias.size(); ++i) output[i] += bias[i];
}

void activate_row(const Activation& activation, std::span<Real> values) {
    if (activation.function == gelu) return for_registers(values, gelu_of);
    if (activation.function == gelu_tanh) return for_registers(values, gelu_tanh_of);
    if (activation.function == silu) return for_registers(values, silu_of);
    for (Real& value : values) value = activation.function(value);
}

void multiply_row(std::span<Real> values, std::span<const Real> factors) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factors[i];
}

}  // namespace llm::models
