#include "chapters/15_fast/simd.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <xsimd/xsimd.hpp>

namespace llm {
namespace {

// The contents of one vector register.
using Batch = xsimd::batch<Real>;
constexpr std::size_t simd_size = Batch::size;

Batch load(const Real* values) { return Batch::load_unaligned(values); }

Real horizontal_sum(Batch batch) {
    std::array<Real, simd_size> values;
    batch.store_unaligned(values.data());
    Real sum = 0;
    for (const Real value : values) sum += value;
    return sum;
}

// A fused multiply-add (fma) has a latency of about four clock cycles, but at least one can
// start in each cycle. With a single accumulator, each fma would wait for the previous one;
// four independent accumulators allow four to be in flight.
struct Accumulators {
    std::array<Batch, 4> sums = {Batch(0), Batch(0), Batch(0), Batch(0)};

    // Multiplies and accumulates 64 pairs of elements.
    void add_products(const Real* a, const Real* b) {
        for (std::size_t i = 0; i < 64; i += 4 * simd_size)
            for (std::size_t j = 0; j < 4; ++j) {
                const std::size_t offset = i + j * simd_size;
                sums[j] = xsimd::fma(load(a + offset), load(b + offset), sums[j]);
            }
    }
    Batch total() const { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }
};
static_assert(64 % (4 * simd_size) == 0);

// As to_float of dtype.cpp, but inline: the compiler can vectorize the loops that call it.
Real widen(Bfloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

}  // namespace

Real dot(std::span<const Real> a, std::span<const Real> b) {
    Accumulators accumulators;
    std::size_t i = 0;
    for (; i + 64 <= a.size(); i += 64) accumulators.add_products(&a[i], &b[i]);
    Real sum = horizontal_sum(accumulators.total());
    for (; i < a.size(); ++i) sum += a[i] * b[i];  // the remainder: fewer than 64 elements
    return sum;
}

Real dot(std::span<const Bfloat16> row, std::span<const Real> inputs) {
    Accumulators accumulators;
    std::array<Real, 64> weights;
    std::size_t i = 0;
    for (; i + 64 <= row.size(); i += 64) {
        for (std::size_t j = 0; j < 64; ++j) weights[j] = widen(row[i + j]);
        accumulators.add_products(weights.data(), &inputs[i]);
    }
    Real sum = horizontal_sum(accumulators.total());
    for (; i < row.size(); ++i) sum += widen(row[i]) * inputs[i];
    return sum;
}

Real dot(const Int8Row& row, std::span<const Real> inputs) {
    const auto [values, scales] = row;
    Batch total(0);
    std::array<Real, group_size> weights;
    std::size_t i = 0;
    for (; i + group_size <= values.size(); i += group_size) {
        // Sum the products of the group without its scale, then scale the sum once.
        for (std::size_t j = 0; j < group_size; ++j) weights[j] = values[i + j];
        Accumulators accumulators;
        accumulators.add_products(weights.data(), &inputs[i]);
        total = xsimd::fma(accumulators.total(), Batch(scales[i / group_size]), total);
    }
    Real sum = horizontal_sum(total);
    for (; i < values.size(); ++i) sum += values[i] * scales[i / group_size] * inputs[i];
    return sum;
}

void dequantize(std::span<const Bfloat16> row, std::span<Real> weights) {
    for (std::size_t i = 0; i < row.size(); ++i) weights[i] = widen(row[i]);
}

void dequantize(const Int8Row& row, std::span<Real> weights) {
    for (std::size_t begin = 0; begin < weights.size(); begin += group_size) {
        const std::size_t end = std::min(begin + group_size, weights.size());
        const Real scale = row.scales[begin / group_size];
        for (std::size_t i = begin; i < end; ++i) weights[i] = row.values[i] * scale;
    }
}

void axpy(Real alpha, std::span<const Real> x, std::span<Real> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += alpha * x[i];
}

Real amax(std::span<const Real> values) {
    const Batch lowest(-std::numeric_limits<Real>::infinity());
    std::array<Batch, 4> maxima = {lowest, lowest, lowest, lowest};
    std::size_t i = 0;
    for (; i + 4 * simd_size <= values.size(); i += 4 * simd_size)
        for (std::size_t j = 0; j < 4; ++j)
            maxima[j] = xsimd::max(maxima[j], load(&values[i + j * simd_size]));
    std::array<Real, simd_size> last;
    xsimd::max(xsimd::max(maxima[0], maxima[1]), xsimd::max(maxima[2], maxima[3]))
        .store_unaligned(last.data());
    Real result = *std::max_element(last.begin(), last.end());
    for (; i < values.size(); ++i) result = std::max(result, values[i]);
    return result;
}

Real exp_and_sum(std::span<Real> values, Real scale, Real shift) {
    Batch sums(0);
    std::size_t i = 0;
    for (; i + simd_size <= values.size(); i += simd_size) {
        const Batch powers = xsimd::exp(load(&values[i]) * Batch(scale) - Batch(shift));
        powers.store_unaligned(&values[i]);
        sums += powers;
    }
    Real sum = horizontal_sum(sums);
    for (; i < values.size(); ++i) {
        values[i] = std::exp(values[i] * scale - shift);
        sum += values[i];
    }
    return sum;
}

void rms_norm(std::span<const Real> row, std::span<const Real> weight, Real eps,
              std::span<Real> output) {
    const Real rms = std::sqrt(dot(row, row) / static_cast<Real>(row.size()) + eps);
    for (std::size_t i = 0; i < row.size(); ++i) output[i] = row[i] / rms * weight[i];
}

void apply_rotary_embedding(std::span<Real> head, std::span<const Real> cos,
                            std::span<const Real> sin) {
    const std::size_t half = head.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
        const Real first = head[i], second = head[i + half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + half] = second * cos[i] + first * sin[i];
    }
}

void silu_and_mul(std::span<Real> gate, std::span<const Real> up) {
    std::size_t i = 0;
    for (; i + simd_size <= gate.size(); i += simd_size) {
        const Batch x = load(&gate[i]);
        const Batch silu = x / (Batch(1) + xsimd::exp(-x));
        (silu * load(&up[i])).store_unaligned(&gate[i]);
    }
    for (; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

}  // namespace llm
