// Chapter 08, steps of the program: many layers.
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

// Which norm placements the part on many layers compares, and with how many layers.
struct DepthOptions {
    std::string norm_placement = "all";  // or the name of one
    std::size_t num_hidden_layers = 48;
};

// Runs an input and a slightly changed copy of it through all layers with each norm placement,
// shows and plots measurements of the residual stream. The other sizes are the default ones.
void compare_depths(const DepthOptions& options, std::uint32_t seed);

}  // namespace llm
