// Chapter 08, program: what the two parts share, and the part on 48 layers.
#pragma once

#include <string>
#include <vector>

#include "chapters/08_pre_vs_post_norm/block.hpp"

namespace llm {

struct NamedNormPlacement {
    std::string name;
    NormPlacement placement;
};
inline const std::vector<NamedNormPlacement> placements = {
    {"pre-norm", NormPlacement::pre_norm},
    {"post-norm", NormPlacement::post_norm},
    {"res-post-norm", NormPlacement::res_post_norm},
    {"sandwich", NormPlacement::sandwich},
    {"parallel", NormPlacement::parallel}};

// The weights of a block, for any norm placement.
struct Weights {
    AttentionLayer self_attn;
    GatedMlp mlp;

    Weights(const Config& config, std::size_t intermediate_size, Generator& generator)
        : self_attn(make_attention_layer(config, generator)),
          mlp(make_gated_mlp(config.hidden_size, intermediate_size, false, SiLU, generator)) {}
};

// Runs an input and a slightly changed copy of it through 48 layers with every norm placement,
// shows and plots measurements of the residual stream. The sizes are always the default ones.
void compare_48_layers(std::uint32_t seed);

}  // namespace llm
