// The scales and mins that the K-quants fit, against their definitions.
#include <cmath>

#include "chapters/16_quantization/quantizers.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

struct Fit {
    double scale = 0, error = infinity;
};

// The scale with the least squared error if the weights become these integers.
Fit fit_to(const std::vector<double>& weights, const std::vector<double>& integers) {
    double sum_qw = 0, sum_qq = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        sum_qw += integers[i] * weights[i];
        sum_qq += integers[i] * integers[i];
    }
    Fit fit{sum_qw / sum_qq, 0};
    for (std::size_t i = 0; i < weights.size(); ++i)
        fit.error += std::pow(weights[i] - fit.scale * integers[i], 2);
    return fit;
}

// The best of the scales with which the largest weight becomes -31.1, -31.2, ..., -32.9.
Fit best_of_19(const std::vector<double>& weights) {
    double largest = 0;
    for (const double weight : weights)
        if (std::abs(weight) > std::abs(largest)) largest = weight;
    Fit best;
    for (int tenths = 311; tenths <= 329; ++tenths) {
        std::vector<double> integers;
        for (const double weight : weights)
            integers.push_back(
                std::clamp(std::round(-tenths / 10.0 * weight / largest), -32.0, 31.0));
        const Fit fit = fit_to(weights, integers);
        if (fit.error < best.error) best = fit;
    }
    return best;
}

}  // namespace

TEST_CASE("quantize_q6_k: the scale of a group is the best of 19 candidates") {
    Generator generator(11);
    for (int repetition = 0; repetition < 200; ++repetition) {
        INFO(repetition);
        std::vector<double> group(16);
        for (double& weight : group) weight = double(generator.next_normal());
        std::array<Real, 256> weights;
        for (std::size_t i = 0; i < 256; ++i) weights[i] = Real(group[i % 16]);
        const BlockQ6_K block = quantize_q6_k(weights);
        for (const std::int8_t scale : block.scales) CHECK(int{scale} == -128);
        const double scale = double(static_cast<Real>(block.scale)) * -128;
        CHECK(scale == doctest::Approx(best_of_19(group).scale).epsilon(6e-4));
    }
}

TEST_CASE("quantize_q6_k: of equally good scales, that of -32 wins") {
    // 32 is -32 * -1 or -31 * -32/31. With the last candidate, 0.49 would become 1.
    std::array<Real, 256> weights{};
    for (std::size_t i = 0; i < 256; i += 16) weights[i] = 32, weights[i + 1] = Real(0.49);
    const BlockQ6_K block = quantize_q6_k(weights);
    CHECK(static_cast<Real>(block.scale) * Real(block.scales[0]) == -1);
}
