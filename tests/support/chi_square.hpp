// A chi-square test of sampled tokens against a distribution.
#pragma once

#include <cmath>

#include "tests/support/check.hpp"

namespace llm {

// The value that a chi-square statistic exceeds with a probability of about 0.0001. Source:
// Wilson and Hilferty, 1931: the cube root is nearly normal.
inline double chi_square_bound(std::size_t degrees_of_freedom) {
    const double k = double(degrees_of_freedom), variance = 2 / (9 * k);
    return k * std::pow(1 - variance + 3.719 * std::sqrt(variance), 3);
}

// Checks counts of samples against probabilities. Tokens of probability 0 must not occur; those
// that are expected fewer than 5 times are counted together.
inline void check_frequencies(const std::vector<std::size_t>& counts,
                              const std::vector<double>& probabilities) {
    REQUIRE(counts.size() == probabilities.size());
    double total = 0, sum = 0, statistic = 0, rare = 0, rare_expected = 0;
    for (const std::size_t count : counts) total += double(count);
    for (const double probability : probabilities) sum += probability;
    std::size_t cells = 0;
    const auto add = [&](double count, double expected) {
        statistic += (count - expected) * (count - expected) / expected;
        ++cells;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double expected = total * probabilities[i] / sum;
        if (expected == 0) CHECK(counts[i] == 0);
        if (expected >= 5) {
            add(double(counts[i]), expected);
        } else {
            rare += double(counts[i]);
            rare_expected += expected;
        }
    }
    if (rare_expected > 0) add(rare, rare_expected);
    REQUIRE(cells > 1);
    CHECK(statistic < chi_square_bound(cells - 1));
}

}  // namespace llm
