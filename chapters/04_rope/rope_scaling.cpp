#include "chapters/04_rope/rope_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "chapters/04_rope/rope.hpp"

namespace llm {

Vector interpolate_positions(const Vector& inverse_frequencies, Real factor) {
    return inverse_frequencies / factor;
}

Real ntk_theta(Real rope_theta, Real factor, std::size_t head_dim) {
    require(head_dim > 2, "rope: NTK scaling needs more than one pair, not a head_dim of {}",
            head_dim);
    const Real dim = static_cast<Real>(head_dim);
    return rope_theta * std::pow(factor, dim / (dim - 2));
}

Vector scale_like_llama3(const Vector& inverse_frequencies, const Llama3Scaling& scaling) {
    const Real low = scaling.low_freq_factor, high = scaling.high_freq_factor;
    require(low <= high, "rope: low_freq_factor must not exceed high_freq_factor");
    Vector scaled = inverse_frequencies;  // (D/2)
    for (Real& frequency : scaled) {
        // How many rotations does this pair make within the original context?
        const Real wavelength = 2 * std::numbers::pi_v<Real> / frequency;
        const Real rotations = scaling.original_max_position_embeddings / wavelength;

        // Interpolate: 0 for at most `low` rotations, 1 for `high` or more. (In Llama 4 they
        // are equal: nothing lies between them.)
        const Real smooth = rotations >= high  ? Real(1)
                            : rotations <= low ? Real(0)
                                               : (rotations - low) / (high - low);
        frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
    }
    return scaled;
}

Vector divide_frequencies(const Vector& inverse_frequencies, const Vector& factors) {
    require(factors.size() == inverse_frequencies.size(),
            "rope: {} frequency factors for {} frequencies", factors.size(),
            inverse_frequencies.size());
    return inverse_frequencies / factors;
}

Vector rope_frequencies(const Config& config) {
    const Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);
    if (!config.rope_scaling) return frequencies;
    if (const auto* llama3 = std::get_if<Llama3Scaling>(&*config.rope_scaling))
        return scale_like_llama3(frequencies, *llama3);
    return divide_frequencies(frequencies,
                              std::get<FrequencyFactors>(*config.rope_scaling).factors);
}

}  // namespace llm
