#include "chapters/15_fast/exercise.hpp"

#include <bit>
#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 12.1 — find the bug. A text that fits into one piece is right. In a longer one, what
// was read first may get far too much weight.
Vector context_in_pieces(const Vector& scores, const Matrix& values, std::size_t piece_size) {
    Vector context = xt::zeros<Real>({values.shape(1)});
    Real maximum = -infinity, sum = 0;
    for (std::size_t begin = 0; begin < scores.size(); begin += piece_size) {
        const std::size_t size = std::min(piece_size, scores.size() - begin);
        const Real new_maximum = std::max(maximum, largest({&scores(begin), size}));
        sum *= std::exp(maximum - new_maximum);
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

// Exercise 12.2 — find the bug. Four sums side by side are fast, and models with a width of 64
// or 128 are right. A model with a width of 66 is a little wrong everywhere.
Real dot_side_by_side(std::span<const Real> a, std::span<const Real> b) {
    std::array<Real, 4> sums = {0, 0, 0, 0};
    for (std::size_t i = 0; i + 4 <= a.size(); i += 4)
        for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Exercise 12.3 — find the bug. Append a word to a text, and what the model says about the
// words before it changes.
std::size_t visible_keys(std::size_t position, std::size_t begin, std::size_t size) {
    const std::size_t end = position + 1;  // behind the last key that may be seen
    if (end < begin) return 0;
    return std::min(size, end - begin + 1);
}

// Exercise 12.4 — find the bug. Most rows come back almost as they were. Of a row with one
// large weight little else comes back.
QuantizedRow quantize(const Vector& row) {
    QuantizedRow quantized;
    Real size = 0;
    for (const Real weight : row) size = std::max(size, std::abs(weight));
    for (std::size_t begin = 0; begin < row.size(); begin += group_size) {
        const std::size_t end = std::min(begin + group_size, row.size());
        const Real scale = size / 127;
        quantized.scales.push_back(scale);
        for (std::size_t i = begin; i < end; ++i)
            quantized.numbers.push_back(
                static_cast<std::int8_t>(scale == 0 ? 0 : std::round(row(i) / scale)));
    }
    return quantized;
}

// Exercise 12.5 — find the bug. No weight moves away from 0, and almost all move towards it:
// one by up to 0.8 percent, all together by about 0.3.
Bfloat16 narrowed(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    return {static_cast<std::uint16_t>(bits >> 16)};
}

// Exercise 12.6 — write merge: from what a query took from some of the keys, and what it took
// from others, what it takes from all of them. Either part may have no key, or both. So several
// cores can share one long text, which is known as flash-decoding.
Partial merge([[maybe_unused]] const Partial& a, [[maybe_unused]] const Partial& b) {
    TODO("merge");
}

// Exercise 12.7 — write integer_dot. The lesson turns every weight into a float. Here both rows
// are whole numbers, and so is the sum of a group. The scales are needed once a group.
Real integer_dot([[maybe_unused]] const Int8Row& weights,
                 [[maybe_unused]] const Int8Row& inputs) {
    TODO("integer_dot");
}

// Exercise 12.8 — write pack_int4 and unpack_int4. The largest weight of a group becomes 7 or
// -7, a weight of 0 stays 0, and any row may end in the middle of a group or of a byte.
Int4Row pack_int4([[maybe_unused]] const Vector& row) { TODO("pack_int4"); }
Vector unpack_int4([[maybe_unused]] const Int4Row& packed) { TODO("unpack_int4"); }

}  // namespace exercise
