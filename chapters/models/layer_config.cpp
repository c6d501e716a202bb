#include "chapters/models/layer_config.hpp"

#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"

namespace llm::models {

RotaryTable make_rotary_table(const RopeParameters& rope, std::size_t num_positions) {
    const std::size_t rotated = rope.rotary_dim;
    const Vector plain = inverse_frequencies(rotated, rope.rope_theta);
    RotaryTable table;
    if (const auto* yarn = std::get_if<YarnScaling>(&rope.scaling))
        table = make_yarn_rotary_table(rotated, rope.rope_theta, *yarn, num_positions);
    else if (const auto* longrope = std::get_if<LongRopeScaling>(&rope.scaling))
        table = make_longrope_rotary_table(plain, *longrope, num_positions);
    else if (const auto* llama3 = std::get_if<Llama3Scaling>(&rope.scaling))
        table = make_rotary_table(scale_like_llama3(plain, *llama3), num_positions);
    else if (const auto* divisors = std::get_if<FrequencyFactors>(&rope.scaling))
        table = make_rotary_table(divide_frequencies(plain, divisors->factors), num_positions);
    else
        table = make_rotary_table(plain, num_positions);
    table.num_unrotated = rope.head_dim - rotated;
    return table;
}

double LatentConfig::scale() const {
    const auto* yarn = std::get_if<YarnScaling>(&rope.scaling);
    const double factor = yarn ? double(yarn_mscale(yarn->factor, mscale_all_dim)) : 1;
    return factor * factor / std::sqrt(double(sizes.qk_nope_head_dim + sizes.qk_rope_head_dim));
}

namespace {

template <class AnyLayer>
auto* rope_in(AnyLayer& layer) {
    if (auto* attention = std::get_if<AttentionConfig>(&layer.mixer))
        return attention->rope ? &*attention->rope : nullptr;
    auto* latent = std::get_if<LatentConfig>(&layer.mixer);
    return latent ? &latent->rope : nullptr;
}

}  // namespace

RopeParameters* rope_of(LayerConfig& layer) { return rope_in(layer); }
const RopeParameters* rope_of(const LayerConfig& layer) { return rope_in(layer); }

std::optional<std::size_t> window_of(const LayerConfig& layer) {
    const AttentionConfig* attention = attention_of(layer);
    const auto* sliding = attention ? std::get_if<SlidingWindow>(&attention->pattern) : nullptr;
    return sliding ? std::optional(sliding->window) : std::nullopt;
}

}  // namespace llm::models
