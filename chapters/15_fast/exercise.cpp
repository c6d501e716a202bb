#include "chapters/15_fast/exercise.hpp"

#include <bit>
#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 15.1 — find the bug. The result is correct for a sequence that fits into one block.
// In a longer one, the first blocks may get far too much weight.
Vector attention_in_blocks(const Vector& scores, const Matrix& values, std::size_t block_size) {
    Vector context = xt::zeros<Real>({values.shape(1)});
    Real maximum = -infinity, sum = 0;
    for (std::size_t begin = 0; begin < scores.size(); begin += block_size) {
        const std::size_t size = std::min(block_size, scores.size() - begin);
        const Real new_maximum = std::max(maximum, amax({&scores(begin), size}));
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

// Exercise 15.2 — find the bug. The dot product is correct for a hidden size of 64 or 128, and
// slightly wrong for a hidden size of 66.
Real dot_with_four_sums(std::span<const Real> a, std::span<const Real> b) {
    std::array<Real, 4> sums = {0, 0, 0, 0};
    for (std::size_t i = 0; i + 4 <= a.size(); i += 4)
        for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Exercise 15.3 — find the bug. When a token is appended to a sequence, the logits of earlier
// tokens change.
std::size_t num_unmasked_keys(std::size_t position, std::size_t begin, std::size_t size) {
    const std::size_t end = position + 1;  // one past the last unmasked key
    if (end < begin) return 0;
    return std::min(size, end - begin + 1);
}

// Exercise 15.4 — find the bug. The rounding is biased: every weight is rounded towards 0, by
// up to 0.8 percent, and by 0.3 percent on average.
Bfloat16 round_to_bfloat16(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    return {static_cast<std::uint16_t>(bits >> 16)};
}

// Exercise 15.5 — write merge: combine the attention of a query to some of the keys with its
// attention to the others. Either part, or both, may have no keys. With it, several threads can
// share one long sequence; this is known as flash-decoding.
PartialAttention merge([[maybe_unused]] const PartialAttention& a,
                       [[maybe_unused]] const PartialAttention& b) {
    TODO("merge");
}

// Exercise 15.6 — predict: a machine has a peak of 100 GFLOP/s and reads 20 GB/s. What does the
// roofline allow, in GFLOP/s, for one token with weights of one byte, for 4 tokens with
// bfloat16 weights, and for 64 tokens with float32 weights?
Vector predicted_gflops() {
    TODO("predicted_gflops");
    // return {?, ?, ?};
}

// Exercise 15.7 — predict: an online softmax reads the scores 0 and ln 3, and then, in a
// second block, ln 6. Write down exp(maximum) and the sum after the first block, and both after
// the second.
Vector predicted_online_softmax() {
    TODO("predicted_online_softmax");
    // return {?, ?, ?, ?};
}

// Exercise 15.8 — predict: causal attention of 256 queries to 256 keys, in tiles of 64 by 64.
// How many tiles are computed, and how many are skipped?
Vector predicted_tiles() {
    TODO("predicted_tiles");
    // return {?, ?};
}

}  // namespace exercise
