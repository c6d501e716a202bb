#include "common/numbers/random.hpp"

#include <cmath>
#include <numbers>

#include "common/system/parallel.hpp"

namespace llm {
namespace {

// Turns 16 uniform numbers into 16 normal ones, in place (Box-Muller; the j-th and the
// (j + 8)-th number make a pair).
void box_muller(std::span<float> block) {
    for (std::size_t j = 0; j < 8; ++j) {
        const float u1 = 1 - block[j];  // in (0, 1]: its logarithm is finite
        const float u2 = block[j + 8];
        const float radius = std::sqrt(-2 * std::log(u1));
        const float angle = 2 * std::numbers::pi_v<float> * u2;
        block[j] = radius * std::cos(angle);
        block[j + 8] = radius * std::sin(angle);
    }
}

}  // namespace

float Generator::next_uniform() {
    return static_cast<float>(next_32_bits() & 0xFFFFFF) * 0x1p-24f;
}

float Generator::next_normal() {
    if (spare_normal_) {
        const double spare = *spare_normal_;
        spare_normal_.reset();
        return static_cast<float>(spare);
    }
    // A double takes 53 bits of two draws; the first draw is the high half.
    const auto next_double = [this] {
        const std::uint64_t high = next_32_bits();
        const std::uint64_t bits = (high << 32 | next_32_bits()) & ((1ULL << 53) - 1);
        return static_cast<double>(bits) * 0x1p-53;
    };
    const double angle = 2 * std::numbers::pi * next_double();
    const double radius = std::sqrt(-2 * std::log1p(-next_double()));
    spare_normal_ = radius * std::sin(angle);
    return static_cast<float>(radius * std::cos(angle));
}

void Generator::fill_normal(std::span<Real> numbers) {
    const std::size_t count = numbers.size();
    if (count < 16) {
        for (Real& number : numbers) number = next_normal();
        return;
    }

    // Draw all uniform numbers first, one after the other. Then transform them 16 at a time, in
    // chunks that the cores share.
    std::vector<float> draws(count);
    for (float& draw : draws) draw = next_uniform();
    constexpr std::size_t chunk = 16 * 4096;
    in_parallel((count + chunk - 1) / chunk, [&](std::size_t n) {
        for (std::size_t i = n * chunk; i + 16 <= std::min(count, (n + 1) * chunk); i += 16)
            box_muller({draws.data() + i, 16});
    });

    // A rest of less than 16 is drawn again, together with its neighbours to the left.
    if (count % 16 != 0) {
        const std::span<float> last(draws.data() + count - 16, 16);
        for (float& draw : last) draw = next_uniform();
        box_muller(last);
    }
    std::copy(draws.begin(), draws.end(), numbers.begin());
}

}  // namespace llm
