#include "common/numbers/random.hpp"

#include <cmath>
#include <iomanip>
#include <numbers>
#include <sstream>

#include "common/numbers/ceil_div.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// Transforms 16 uniform values into 16 normal ones, in place (Box-Muller). As in PyTorch,
// values j and j + 8 form a pair.
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

std::string Generator::state() const {
    std::ostringstream text;
    text << engine_ << ' ' << spare_normal_.has_value() << ' ' << std::setprecision(17)
         << spare_normal_.value_or(0);
    return text.str();
}

void Generator::set_state(const std::string& text) {
    std::istringstream stream(text);
    bool has_spare = false;
    double spare = 0;
    stream >> engine_ >> has_spare >> spare;
    require(!stream.fail(), "Generator: '{}' is not a state", text.substr(0, 20));
    spare_normal_.reset();
    if (has_spare) spare_normal_ = spare;
}

float Generator::next_uniform() {
    return static_cast<float>(next_32_bits() & 0xFFFFFF) * 0x1p-24f;
}

float Generator::next_normal() {
    if (spare_normal_) {
        const double spare = *spare_normal_;
        spare_normal_.reset();
        return static_cast<float>(spare);
    }
    // A double takes 53 bits of two 32-bit values; the first value is the high half.
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

void Generator::fill_normal(std::span<Real> values) {
    const std::size_t count = values.size();
    if (count < 16) {
        for (Real& value : values) value = next_normal();
        return;
    }

    // Generate all uniform values first, sequentially. Then transform them 16 at a time, in
    // chunks that run in parallel.
    std::vector<float> samples(count);
    for (float& sample : samples) sample = next_uniform();
    constexpr std::size_t chunk = 16 * 4096;
    parallel_for(ceil_div(count, chunk), [&](std::size_t n) {
        for (std::size_t i = n * chunk; i + 16 <= std::min(count, (n + 1) * chunk); i += 16)
            box_muller({samples.data() + i, 16});
    });

    // Regenerate the last 16 values if the count is not a multiple of 16, as PyTorch does.
    if (count % 16 != 0) {
        const std::span<float> last(samples.data() + count - 16, 16);
        for (float& sample : last) sample = next_uniform();
        box_muller(last);
    }
    std::copy(samples.begin(), samples.end(), values.begin());
}

}  // namespace llm
