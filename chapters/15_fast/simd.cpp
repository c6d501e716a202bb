#include "chapters/15_fast/simd.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <xsimd/xsimd.hpp>

namespace llm {
namespace {

// As many numbers as one register holds.
using Lanes = xsimd::batch<Real>;
constexpr std::size_t num_lanes = Lanes::size;

Lanes load(const Real* numbers) { return Lanes::load_unaligned(numbers); }

Real sum_of(Lanes lanes) {
    std::array<Real, num_lanes> numbers;
    lanes.store_unaligned(numbers.data());
    Real sum = 0;
    for (const Real number : numbers) sum += number;
    return sum;
}

// A multiplication with an addition takes about four steps of the clock. One can begin in each
// step, as fast as its two numbers are loaded. A single sum would wait for itself; four sums
// keep the processor busy.
struct FourSums {
    std::array<Lanes, 4> sums = {Lanes(0), Lanes(0), Lanes(0), Lanes(0)};

    // The products of 64 numbers.
    void add_products(const Real* a, const Real* b) {
        for (std::size_t i = 0; i < 64; i += 4 * num_lanes)
            for (std::size_t j = 0; j < 4; ++j) {
                const std::size_t place = i + j * num_lanes;
                sums[j] = xsimd::fma(load(a + place), load(b + place), sums[j]);
            }
    }
    Lanes total() const { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }
};
static_assert(64 % (4 * num_lanes) == 0);

Real widened(Bfloat16 number) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(number.bits) << 16);
}

}  // namespace

Real dot(std::span<const Real> a, std::span<const Real> b) {
    FourSums sums;
    std::size_t i = 0;
    for (; i + 64 <= a.size(); i += 64) sums.add_products(&a[i], &b[i]);
    Real sum = sum_of(sums.total());
    for (; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

Real dot(std::span<const Bfloat16> row, std::span<const Real> inputs) {
    FourSums sums;
    std::array<Real, 64> weights;
    std::size_t i = 0;
    for (; i + 64 <= row.size(); i += 64) {
        for (std::size_t j = 0; j < 64; ++j) weights[j] = widened(row[i + j]);
        sums.add_products(weights.data(), &inputs[i]);
    }
    Real sum = sum_of(sums.total());
    for (; i < row.size(); ++i) sum += widened(row[i]) * inputs[i];
    return sum;
}

Real dot(const Int8Row& row, std::span<const Real> inputs) {
    const auto [numbers, scales] = row;
    Lanes total(0);
    std::array<Real, group_size> weights;
    std::size_t i = 0;
    for (; i + group_size <= numbers.size(); i += group_size) {
        // Sum up the group as it is stored. Its scale is needed once, at the end.
        for (std::size_t j = 0; j < group_size; ++j) weights[j] = numbers[i + j];
        FourSums sums;
        sums.add_products(weights.data(), &inputs[i]);
        total = xsimd::fma(sums.total(), Lanes(scales[i / group_size]), total);
    }
    Real sum = sum_of(total);
    for (; i < numbers.size(); ++i) sum += numbers[i] * scales[i / group_size] * inputs[i];
    return sum;
}

void unpack(std::span<const Bfloat16> row, std::span<Real> weights) {
    for (std::size_t i = 0; i < row.size(); ++i) weights[i] = widened(row[i]);
}

void unpack(const Int8Row& row, std::span<Real> weights) {
    for (std::size_t begin = 0; begin < weights.size(); begin += group_size) {
        const std::size_t end = std::min(begin + group_size, weights.size());
        const Real scale = row.scales[begin / group_size];
        for (std::size_t i = begin; i < end; ++i) weights[i] = row.numbers[i] * scale;
    }
}

void add_scaled(std::span<Real> sums, Real factor, std::span<const Real> numbers) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += factor * numbers[i];
}

Real largest(std::span<const Real> numbers) {
    const Lanes none(-std::numeric_limits<Real>::infinity());
    std::array<Lanes, 4> maxima = {none, none, none, none};
    std::size_t i = 0;
    for (; i + 4 * num_lanes <= numbers.size(); i += 4 * num_lanes)
        for (std::size_t j = 0; j < 4; ++j)
            maxima[j] = xsimd::max(maxima[j], load(&numbers[i + j * num_lanes]));
    std::array<Real, num_lanes> lanes;
    xsimd::max(xsimd::max(maxima[0], maxima[1]), xsimd::max(maxima[2], maxima[3]))
        .store_unaligned(lanes.data());
    Real result = *std::max_element(lanes.begin(), lanes.end());
    for (; i < numbers.size(); ++i) result = std::max(result, numbers[i]);
    return result;
}

Real exponentials(std::span<Real> numbers, Real scale, Real shift) {
    Lanes sums(0);
    std::size_t i = 0;
    for (; i + num_lanes <= numbers.size(); i += num_lanes) {
        const Lanes powers = xsimd::exp(load(&numbers[i]) * Lanes(scale) - Lanes(shift));
        powers.store_unaligned(&numbers[i]);
        sums += powers;
    }
    Real sum = sum_of(sums);
    for (; i < numbers.size(); ++i) {
        numbers[i] = std::exp(numbers[i] * scale - shift);
        sum += numbers[i];
    }
    return sum;
}

void normalize(std::span<const Real> row, std::span<const Real> weight, Real eps,
               std::span<Real> normalized) {
    const Real rms = std::sqrt(dot(row, row) / static_cast<Real>(row.size()) + eps);
    for (std::size_t i = 0; i < row.size(); ++i) normalized[i] = row[i] / rms * weight[i];
}

void rotate_head(std::span<Real> head, std::span<const Real> cos, std::span<const Real> sin) {
    const std::size_t half = head.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
        const Real first = head[i], second = head[i + half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + half] = second * cos[i] + first * sin[i];
    }
}

void apply_gate(std::span<Real> gate, std::span<const Real> up) {
    std::size_t i = 0;
    for (; i + num_lanes <= gate.size(); i += num_lanes) {
        const Lanes x = load(&gate[i]);
        const Lanes silu = x / (Lanes(1) + xsimd::exp(-x));
        (silu * load(&up[i])).store_unaligned(&gate[i]);
    }
    for (; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

}  // namespace llm
