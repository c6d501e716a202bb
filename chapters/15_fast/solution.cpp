#include "chapters/15_fast/exercise.hpp"

#include <bit>
#include <cmath>

namespace exercise {

// Exercise 15.1 — sum and context are both relative to the maximum so far, so both are rescaled
// when a block has a larger one.
Vector attention_in_blocks(const Vector& scores, const Matrix& values, std::size_t block_size) {
    Vector context = xt::zeros<Real>({values.shape(1)});
    Real maximum = -infinity, sum = 0;
    for (std::size_t begin = 0; begin < scores.size(); begin += block_size) {
        const std::size_t size = std::min(block_size, scores.size() - begin);
        const Real new_maximum = std::max(maximum, amax({&scores(begin), size}));
        const Real factor = std::exp(maximum - new_maximum);
        sum *= factor;
        context = context * factor;
        maximum = new_maximum;
        for (std::size_t s = begin; s < begin + size; ++s) {
            const Real weight = std::exp(scores(s) - maximum);
            sum += weight;
            for (std::size_t d = 0; d < context.size(); ++d)
                context(d) += weight * values(s, d);
        }
    }
    return context / sum;
}

// Exercise 15.2 — the fewer than four remaining products are added one by one.
Real dot_with_four_sums(std::span<const Real> a, std::span<const Real> b) {
    std::array<Real, 4> sums = {0, 0, 0, 0};
    std::size_t i = 0;
    for (; i + 4 <= a.size(); i += 4)
        for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
    Real sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Exercise 15.3 — the positions from begin to end - 1 are end - begin keys.
std::size_t num_unmasked_keys(std::size_t position, std::size_t begin, std::size_t size) {
    const std::size_t end = position + 1;  // one past the last unmasked key
    if (end < begin) return 0;
    return std::min(size, end - begin);
}

// Exercise 15.4 — round before truncating: 0x8000 is half of the last bit that is kept. Add
// just under half, or half if the last kept bit is odd. A carry into the exponent gives
// the correct result.
Bfloat16 round_to_bfloat16(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t last_kept_bit = (bits >> 16) & 1;
    return {static_cast<std::uint16_t>((bits + 0x7FFF + last_kept_bit) >> 16)};
}

// Exercise 15.5 — as in the online softmax: the part with the smaller maximum is rescaled. A
// part without keys has a factor of exp(-inf) = 0.
PartialAttention merge(const PartialAttention& a, const PartialAttention& b) {
    const Real maximum = std::max(a.maximum, b.maximum);
    if (maximum == -infinity) return a;  // neither has keys; -inf - -inf would be NaN
    const Real factor_a = std::exp(a.maximum - maximum);
    const Real factor_b = std::exp(b.maximum - maximum);
    return {maximum, a.sum * factor_a + b.sum * factor_b,
            a.context * factor_a + b.context * factor_b};
}

// Exercise 15.6 — 2N / b FLOPs per byte: 2 * 20, 4 * 20, and 32 * 20, which is above the peak.
Vector predicted_gflops() { return {40, 80, 100}; }

// Exercise 15.7 — first maximum ln 3 and sum 1/3 + 1; then the maximum is ln 6, the old sum is
// multiplied by exp(ln 3 - ln 6) = 1/2, and 1 is added.
Vector predicted_online_softmax() { return {3, Real(4) / 3, 6, Real(5) / 3}; }

// Exercise 15.8 — 4 by 4 tiles, of which 1 + 2 + 3 + 4 are on or below the diagonal.
Vector predicted_tiles() { return {10, 6}; }

}  // namespace exercise
