#include "chapters/16_quantization/quantizers.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace llm {
namespace {

// Rounds to the nearest integer within limits.
int round_within(Real value, int low, int high) {
    const Real within = std::clamp(value, static_cast<Real>(low), static_cast<Real>(high));
    return static_cast<int>(std::lround(within));
}

// Levels at scale * q - min, for the integers q from 0 to 15.
struct Levels {
    Real scale = 0, min = 0;
};

// The scale and the min with the least squared error, if these are the integers of the weights:
// a linear regression of the weights on the integers.
Levels regression(std::span<const Real> weights, std::span<const int> integers) {
    double sum_q = 0, sum_qq = 0, sum_w = 0, sum_qw = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const double q = integers[i], w = weights[i];
        sum_q += q, sum_qq += q * q, sum_w += w, sum_qw += q * w;
    }
    const double n = static_cast<double>(weights.size());
    const double determinant = n * sum_qq - sum_q * sum_q;
    if (determinant == 0) return {};
    const double scale = (n * sum_qw - sum_q * sum_w) / determinant;
    const double min = (scale * sum_q - sum_w) / n;

    // The min is an unsigned integer times a scale. If it would be negative, use none.
    if (min >= 0) return {static_cast<Real>(scale), static_cast<Real>(min)};
    return {static_cast<Real>(sum_qq == 0 ? 0 : sum_qw / sum_qq), 0};
}

int nearest_level(Real weight, Levels levels) {
    return levels.scale == 0 ? 0 : round_within((weight + levels.min) / levels.scale, 0, 15);
}

double squared_error(std::span<const Real> weights, Levels levels) {
    double sum = 0;
    for (const Real weight : weights) {
        const Real level =
            levels.scale * static_cast<Real>(nearest_level(weight, levels)) - levels.min;
        sum += double(weight - level) * double(weight - level);
    }
    return sum;
}

// Searches for the levels with the least squared error. The obvious ones, from the smallest to
// the largest weight, are not the best: it pays to clip the outermost weights a little, and
// with an outlier among small weights, to have a level at 0.
Levels fit_levels(std::span<const Real> weights) {
    const Real highest = *std::max_element(weights.begin(), weights.end());
    const Real lowest = std::min(*std::min_element(weights.begin(), weights.end()), Real(0));
    Levels best{std::max(highest - lowest, Real(0)) / 15, -lowest};
    if (best.scale == 0) return best;
    double least_error = squared_error(weights, best);
    std::vector<int> integers(weights.size());
    for (const Real min : {-lowest, Real(0)})
        for (int step = -10; step <= 10; ++step) {
            const Real scale = (highest + min) / (15 + Real(0.1) * static_cast<Real>(step));
            for (std::size_t i = 0; i < weights.size(); ++i)
                integers[i] = nearest_level(weights[i], {scale, min});
            const Levels fitted = regression(weights, integers);
            const double error = squared_error(weights, fitted);
            if (fitted.scale <= 0 || error >= least_error) continue;
            least_error = error;
            best = fitted;
        }
    return best;
}

// Packs eight scales and eight mins of 6 bits each into 12 bytes: unpack_scale_and_min reads
// them.
std::array<std::uint8_t, 12> pack(const std::array<ScaleAndMin, 8>& groups) {
    std::array<std::uint8_t, 12> bytes{};
    for (std::size_t g = 0; g < 4; ++g) {
        const auto [scale, min] = groups[g];
        const auto [later_scale, later_min] = groups[4 + g];
        bytes[g] = static_cast<std::uint8_t>(scale | later_scale >> 4 << 6);
        bytes[4 + g] = static_cast<std::uint8_t>(min | later_min >> 4 << 6);
        bytes[8 + g] = static_cast<std::uint8_t>((later_scale & 15) | (later_min & 15) << 4);
    }
    return bytes;
}

// The scale of 16 weights with the least squared error, for integers from -32 to 31. The
// obvious one, with which the largest weight becomes -32, comes first: of scales with the same
// error, it wins.
Real fit_scale(std::span<const Real> weights) {
    const Real largest = largest_weight(weights);
    if (largest == 0) return 0;
    Real best = 0;
    double most_explained = 0;
    for (int n = 0; n < 19; ++n) {
        const int step = n % 2 == 0 ? n / 2 : -(n + 1) / 2;  // 0, -1, 1, ..., -9, 9
        const Real inverse = -(32 + Real(0.1) * static_cast<Real>(step)) / largest;

        // For given integers, the best scale is Σqw / Σqq; it explains (Σqw)² / Σqq.
        double sum_qw = 0, sum_qq = 0;
        for (const Real weight : weights) {
            const int q = round_within(inverse * weight, -32, 31);
            sum_qw += q * double(weight);
            sum_qq += double(q) * q;
        }
        if (sum_qq == 0 || sum_qw * sum_qw <= most_explained * sum_qq) continue;
        most_explained = sum_qw * sum_qw / sum_qq;
        best = static_cast<Real>(sum_qw / sum_qq);
    }
    return best;
}

// Writes weight i of a Q6_K block: its lower four and upper two bits are stored apart.
void store_q6_k(int value, std::size_t i, BlockQ6_K& block) {
    const std::size_t half = i / 128, run = i % 128 / 32, offset = i % 32;
    const int low = value & 15, high = value >> 4;
    block.low_bits[64 * half + 32 * (run % 2) + offset] |=
        static_cast<std::uint8_t>(run < 2 ? low : low << 4);
    block.high_bits[32 * half + offset] |= static_cast<std::uint8_t>(high << (2 * run));
}

}  // namespace

BlockQ4_K quantize_q4_k(std::span<const Real, 256> weights) {
    // Choose a scale and a min for each group of 32.
    std::array<Levels, 8> fitted;
    Levels largest;
    for (std::size_t g = 0; g < 8; ++g) {
        fitted[g] = fit_levels(weights.subspan(32 * g, 32));
        largest.scale = std::max(largest.scale, fitted[g].scale);
        largest.min = std::max(largest.min, fitted[g].min);
    }

    // Round them to 6 bits: integers from 0 to 63, times a float16 scale each.
    BlockQ4_K block{Half(largest.scale / 63), Half(largest.min / 63), {}, {}};
    const Real inverse = inverse_of(largest.scale / 63),
               inverse_min = inverse_of(largest.min / 63);
    std::array<ScaleAndMin, 8> groups;
    for (std::size_t g = 0; g < 8; ++g)
        groups[g] = {round_within(fitted[g].scale * inverse, 0, 63),
                     round_within(fitted[g].min * inverse_min, 0, 63)};
    block.scales_and_mins = pack(groups);

    // Round the weights to the levels that this gives.
    for (std::size_t i = 0; i < 256; ++i) {
        const auto [scale, min] = groups[i / 32];
        const Levels levels{static_cast<Real>(block.scale) * static_cast<Real>(scale),
                            static_cast<Real>(block.min_scale) * static_cast<Real>(min)};
        const int value = nearest_level(weights[i], levels);
        block.values[i / 64 * 32 + i % 32] |=
            static_cast<std::uint8_t>(i / 32 % 2 == 0 ? value : value << 4);
    }
    return block;
}

BlockQ6_K quantize_q6_k(std::span<const Real, 256> weights) {
    std::array<Real, 16> scales;
    for (std::size_t g = 0; g < 16; ++g) scales[g] = fit_scale(weights.subspan(16 * g, 16));

    // Round the scales to integers from -128 to 127, times a float16 scale.
    const Real scale = largest_weight(scales) / -128;
    const Real inverse = inverse_of(scale);
    BlockQ6_K block{{}, {}, {}, Half(scale)};
    for (std::size_t g = 0; g < 16; ++g)
        block.scales[g] =
            static_cast<std::int8_t>(round_within(scales[g] * inverse, -128, 127));

    for (std::size_t i = 0; i < 256; ++i) {
        const Real step =
            static_cast<Real>(block.scale) * static_cast<Real>(block.scales[i / 16]);
        store_q6_k(step == 0 ? 32 : round_within(weights[i] / step, -32, 31) + 32, i, block);
    }
    return block;
}

}  // namespace llm
