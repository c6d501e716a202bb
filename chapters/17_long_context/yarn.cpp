#include "chapters/17_long_context/yarn.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "chapters/04_rope/rope_scaling.hpp"

namespace llm {
namespace {

// The (fractional) index of the pair that makes this many rotations in the original context:
// solves original / (2π · theta^(2i/D)) = rotations for i.
Real pair_with_rotations(Real rotations, std::size_t head_dim, Real rope_theta, Real original) {
    const Real dim = static_cast<Real>(head_dim);
    return dim * std::log(original / (rotations * 2 * std::numbers::pi_v<Real>)) /
           (2 * std::log(rope_theta));
}

void check(const YarnScaling& scaling) {
    require(scaling.factor >= 1, "yarn: the factor must be at least 1");
    require(scaling.original_max_position_embeddings >= 1,
            "yarn: original_max_position_embeddings must be at least 1");
    require(scaling.beta_fast > scaling.beta_slow && scaling.beta_slow > 0,
            "yarn: beta_fast must exceed beta_slow, and both must be positive");
}

}  // namespace

Vector yarn_frequencies(std::size_t head_dim, Real rope_theta, const YarnScaling& scaling) {
    check(scaling);
    const Vector extrapolated = inverse_frequencies(head_dim, rope_theta);            // (D/2)
    const Vector interpolated = interpolate_positions(extrapolated, scaling.factor);  // (D/2)

    // Find the pairs between which the transition takes place.
    const auto limit = [&](Real rotations) {
        return pair_with_rotations(rotations, head_dim, rope_theta,
                                   scaling.original_max_position_embeddings);
    };
    Real low = limit(scaling.beta_fast), high = limit(scaling.beta_slow);
    if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, Real(0));
    high = std::min(high, static_cast<Real>(head_dim - 1));
    if (low == high) high += Real(0.001);  // do not divide by 0

    Vector frequencies = extrapolated;  // (D/2)
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const Real ramp =
            std::clamp((static_cast<Real>(i) - low) / (high - low), Real(0), Real(1));
        frequencies(i) = ramp * interpolated(i) + (1 - ramp) * extrapolated(i);
    }
    return frequencies;
}

Real yarn_attention_factor(const YarnScaling& scaling) {
    if (scaling.attention_factor) return *scaling.attention_factor;
    return scaling.factor > 1 ? Real(0.1) * std::log(scaling.factor) + 1 : Real(1);
}

RotaryTable make_yarn_rotary_table(std::size_t head_dim, Real rope_theta,
                                   const YarnScaling& scaling, std::size_t num_positions) {
    const Vector frequencies = yarn_frequencies(head_dim, rope_theta, scaling);  // (D/2)
    const RotaryTable table = make_rotary_table(frequencies, num_positions);
    const Real factor = yarn_attention_factor(scaling);
    return {table.cos * factor, table.sin * factor};  // (P, D/2) each
}

Real longrope_attention_factor(std::size_t max_position_embeddings,
                               std::size_t original_max_position_embeddings) {
    if (max_position_embeddings <= original_max_position_embeddings) return 1;
    const Real original = static_cast<Real>(original_max_position_embeddings);
    const Real factor = static_cast<Real>(max_position_embeddings) / original;
    return std::sqrt(1 + std::log(factor) / std::log(original));
}

RotaryTable make_longrope_rotary_table(const Vector& inverse_frequencies,
                                       const LongRopeScaling& scaling,
                                       std::size_t num_positions) {
    const bool is_long = num_positions > scaling.original_max_position_embeddings;
    const Vector frequencies = divide_frequencies(
        inverse_frequencies, is_long ? scaling.long_factor : scaling.short_factor);  // (D/2)
    const RotaryTable table = make_rotary_table(frequencies, num_positions);
    return {table.cos * scaling.attention_factor, table.sin * scaling.attention_factor};
}

Real dynamic_ntk_theta(Real rope_theta, Real factor, std::size_t head_dim, std::size_t seq_len,
                       std::size_t original_max_position_embeddings) {
    const Real original = static_cast<Real>(original_max_position_embeddings);
    const Real length = std::max(static_cast<Real>(seq_len), original);
    return ntk_theta(rope_theta, factor * length / original - (factor - 1), head_dim);
}

}  // namespace llm
