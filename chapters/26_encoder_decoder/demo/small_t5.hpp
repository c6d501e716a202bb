// Chapter 26: a small T5 with random weights, for its steps and its tests.
#pragma once

#include "chapters/26_encoder_decoder/encoder_decoder.hpp"

namespace llm {

struct SmallT5 {
    std::size_t vocab_size = 19, hidden_size = 10, intermediate_size = 14;  // V, C, F
    std::size_t num_heads = 3, head_dim = 4;                                // H, D
    std::size_t num_layers = 2, num_decoder_layers = 3;
    bool is_gated = false;
};

inline T5Model random_t5(const SmallT5& sizes, Generator& generator) {
    const std::size_t C = sizes.hidden_size, F = sizes.intermediate_size, H = sizes.num_heads;
    const auto linear = [&](std::size_t in, std::size_t out) {
        return make_linear(in, out, false, generator);
    };
    const auto attention = [&] {
        const std::size_t width = H * sizes.head_dim;
        return T5Attention{AttentionLayer{
            H, H, {linear(C, width), linear(C, width), linear(C, width), linear(width, C)}}};
    };
    const auto mlp = [&] {
        if (sizes.is_gated) return T5Mlp{make_gated_mlp(C, F, false, GELUTanh, generator)};
        return T5Mlp{make_mlp(C, F, false, ReLU, generator)};
    };
    const RMSNorm norm = make_rms_norm(C, Real(1e-6));
    T5Model model;
    model.shared = randn({sizes.vocab_size, C}, generator);
    model.encoder_bias.weight = randn({std::size_t{32}, H}, generator);
    model.decoder_bias = {randn({std::size_t{32}, H}, generator), false};
    for (std::size_t n = 0; n < sizes.num_layers; ++n)
        model.encoder_layers.push_back({attention(), mlp(), norm, norm});
    for (std::size_t n = 0; n < sizes.num_decoder_layers; ++n)
        model.decoder_layers.push_back({attention(), attention(), mlp(), norm, norm, norm});
    model.encoder_norm = model.decoder_norm = norm;
    return model;
}

}  // namespace llm
