#include "chapters/17_long_context/rope_extension.hpp"

#include "chapters/04_rope/rope_scaling.hpp"

namespace llm {

namespace {

YarnScaling yarn_scaling(const Config& config, std::size_t factor) {
    return {static_cast<Real>(factor), static_cast<Real>(config.max_position_embeddings)};
}

}  // namespace

const std::vector<NamedExtension>& rope_extensions() {
    static const std::vector<NamedExtension> extensions = {
        {"none", RopeExtension::none},
        {"position interpolation", RopeExtension::position_interpolation},
        {"NTK-aware", RopeExtension::ntk_aware},
        {"Llama 3's", RopeExtension::llama3},
        {"YaRN", RopeExtension::yarn}};
    return extensions;
}

Vector extended_frequencies(const Config& config, RopeExtension extension, std::size_t factor) {
    require(factor >= 1, "extended_frequencies: the factor must be at least 1");
    const Real scale = static_cast<Real>(factor), theta = config.rope_theta;
    const Vector frequencies = inverse_frequencies(config.head_dim, theta);  // (D/2)
    switch (extension) {
        case RopeExtension::none:
            return frequencies;
        case RopeExtension::position_interpolation:
            return interpolate_positions(frequencies, scale);
        case RopeExtension::ntk_aware:
            return inverse_frequencies(config.head_dim,
                                       ntk_theta(theta, scale, config.head_dim));
        case RopeExtension::llama3:
            return scale_like_llama3(
                frequencies, {scale, 1, 4, static_cast<Real>(config.max_position_embeddings)});
        case RopeExtension::yarn:
            break;
    }
    return yarn_frequencies(config.head_dim, theta, yarn_scaling(config, factor));
}

RotaryTable extended_rotary_table(const Config& config, RopeExtension extension,
                                  std::size_t factor) {
    const std::size_t num_positions = factor * config.max_position_embeddings;  // P
    if (extension == RopeExtension::yarn)
        return make_yarn_rotary_table(config.head_dim, config.rope_theta,
                                      yarn_scaling(config, factor), num_positions);
    return make_rotary_table(extended_frequencies(config, extension, factor), num_positions);
}

}  // namespace llm
