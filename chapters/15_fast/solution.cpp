#include "chapters/15_fast/exercise.hpp"

#include <bit>
#include <cmath>

namespace exercise {

// Exercise 12.1 — sum and context are both relative to the maximum so far, so both shrink when
// a larger one comes.
Vector context_in_pieces(const Vector& scores, const Matrix& values, std::size_t piece_size) {
    Vector context = xt::zeros<Real>({values.shape(1)});
    Real maximum = -infinity, sum = 0;
    for (std::size_t begin = 0; begin < scores.size(); begin += piece_size) {
        const std::size_t size = std::min(piece_size, scores.size() - begin);
        const Real new_maximum = std::max(maximum, largest({&scores(begin), size}));
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

// Exercise 12.2 — what is left over, fewer than four numbers, is added one by one.
Real dot_side_by_side(std::span<const Real> a, std::span<const Real> b) {
    std::array<Real, 4> sums = {0, 0, 0, 0};
    std::size_t i = 0;
    for (; i + 4 <= a.size(); i += 4)
        for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
    Real sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Exercise 12.3 — from begin to just before end there are end - begin keys, not one more.
std::size_t visible_keys(std::size_t position, std::size_t begin, std::size_t size) {
    const std::size_t end = position + 1;  // behind the last key that may be seen
    if (end < begin) return 0;
    return std::min(size, end - begin);
}

// Exercise 12.4 — each group has a scale of its own, so a large weight harms 63 others at most.
QuantizedRow quantize(const Vector& row) {
    QuantizedRow quantized;
    for (std::size_t begin = 0; begin < row.size(); begin += group_size) {
        const std::size_t end = std::min(begin + group_size, row.size());
        Real size = 0;
        for (std::size_t i = begin; i < end; ++i) size = std::max(size, std::abs(row(i)));
        const Real scale = size / 127;
        quantized.scales.push_back(scale);
        for (std::size_t i = begin; i < end; ++i)
            quantized.numbers.push_back(
                static_cast<std::int8_t>(scale == 0 ? 0 : std::round(row(i) / scale)));
    }
    return quantized;
}

// Exercise 12.5 — round before cutting off: 0x8000 is half of the last bit that stays. Add just
// under half, or half if that makes the last bit even. A carry into the exponent is right, too.
Bfloat16 narrowed(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t last_kept_bit = (bits >> 16) & 1;
    return {static_cast<std::uint16_t>((bits + 0x7FFF + last_kept_bit) >> 16)};
}

// Exercise 12.6 — as in the lesson, where a new tile comes: what is relative to the smaller
// maximum shrinks. A part without keys has a factor of e^-inf, which is 0.
Partial merge(const Partial& a, const Partial& b) {
    const Real maximum = std::max(a.maximum, b.maximum);
    if (maximum == -infinity) return a;  // both have no key, and -inf minus -inf is NaN
    const Real factor_a = std::exp(a.maximum - maximum);
    const Real factor_b = std::exp(b.maximum - maximum);
    return {maximum, a.sum * factor_a + b.sum * factor_b,
            a.context * factor_a + b.context * factor_b};
}

// Exercise 12.7 — 64 products of at most 127 · 127 are about a million: too much for 16 bits,
// little for 32. All of them have the same two scales as factors, which can wait.
Real integer_dot(const Int8Row& weights, const Int8Row& inputs) {
    Real total = 0;
    for (std::size_t begin = 0; begin < weights.numbers.size(); begin += group_size) {
        const std::size_t end = std::min(begin + group_size, weights.numbers.size());
        std::int32_t sum = 0;
        for (std::size_t i = begin; i < end; ++i) sum += weights.numbers[i] * inputs.numbers[i];
        const std::size_t group = begin / group_size;
        total += static_cast<Real>(sum) * weights.scales[group] * inputs.scales[group];
    }
    return total;
}

// Exercise 12.8 — number i lies in byte i / 2, 4 bits higher if i is odd. As 32 is even, no
// byte belongs to two groups.
Int4Row pack_int4(const Vector& row) {
    const std::size_t size = row.size();
    Int4Row packed{size, std::vector<std::uint8_t>((size + 1) / 2), {}};
    for (std::size_t begin = 0; begin < size; begin += 32) {
        const std::size_t end = std::min(begin + 32, size);
        Real most = 0;
        for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::abs(row(i)));
        const Real scale = most / 7;
        packed.scales.push_back(scale);
        for (std::size_t i = begin; i < end; ++i) {
            const Real number = scale == 0 ? 0 : std::round(row(i) / scale);
            packed.bytes[i / 2] |= (static_cast<int>(number) + 8) << (i % 2 * 4);
        }
    }
    return packed;
}
Vector unpack_int4(const Int4Row& packed) {
    Vector row = xt::zeros<Real>({packed.size});
    for (std::size_t i = 0; i < packed.size; ++i) {
        const int number = ((packed.bytes[i / 2] >> (i % 2 * 4)) & 15) - 8;
        row(i) = static_cast<Real>(number) * packed.scales[i / 32];
    }
    return row;
}

}  // namespace exercise
