#include "chapters/08_pre_vs_post_norm/block.hpp"

#include <cmath>

namespace llm {

Placement causal_placement(const Config& config, std::size_t batch_size, std::size_t seq_len) {
    const Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);
    return {make_rotary_table(frequencies, seq_len), position_ids(batch_size, seq_len),
            expand_mask(causal_mask(seq_len, seq_len), batch_size)};
}

Tensor3 Sublayers::attend(const Tensor3& hidden_states, const Placement& placement) const {
    return self_attn(hidden_states, placement.table, placement.positions, placement.mask);
}

Sublayers make_sublayers(const Config& config, std::size_t intermediate_size,
                         Generator& generator) {
    AttentionLayer self_attn{config, make_projections(config, generator), {}, {}};
    GatedMlp mlp =
        make_gated_mlp(config.hidden_size, intermediate_size, false, silu, generator);
    return {std::move(self_attn), std::move(mlp)};
}

// The road is never normalised, only what turns off it: x reaches the end as a sum.
Tensor3 PreNormBlock::operator()(const Tensor3& hidden_states,
                                 const Placement& placement) const {
    const Tensor3 attended = hidden_states + attend(attention_norm(hidden_states), placement);
    return attended + mlp(ffn_norm(attended));
}

// The road itself is normalised, twice a block.
Tensor3 PostNormBlock::operator()(const Tensor3& hidden_states,
                                  const Placement& placement) const {
    const Tensor3 attended = attention_norm(hidden_states + attend(hidden_states, placement));
    return ffn_norm(attended + mlp(attended));
}

// What joins the road is normalised: the norm's weights set its size, not f.
Tensor3 ResPostNormBlock::operator()(const Tensor3& hidden_states,
                                     const Placement& placement) const {
    const Tensor3 attended = hidden_states + attention_norm(attend(hidden_states, placement));
    return attended + ffn_norm(mlp(attended));
}

// Both: what turns off, and what joins.
Tensor3 SandwichBlock::operator()(const Tensor3& hidden_states,
                                  const Placement& placement) const {
    const Tensor3 attention_output = attend(attention_norm(hidden_states), placement);
    const Tensor3 attended = hidden_states + attention_output_norm(attention_output);
    return attended + ffn_output_norm(mlp(ffn_norm(attended)));
}

// Neither function waits for the other.
Tensor3 ParallelBlock::operator()(const Tensor3& hidden_states,
                                  const Placement& placement) const {
    const Tensor3 normalized = norm(hidden_states);
    return hidden_states + attend(normalized, placement) + mlp(normalized);
}

Block arranged(Arrangement arrangement, const Sublayers& sublayers) {
    const Config& config = sublayers.self_attn.config;
    const RMSNorm norm = make_rms_norm(config.hidden_size, config.rms_norm_eps);
    switch (arrangement) {
        case Arrangement::pre_norm:
            return PreNormBlock{sublayers, norm, norm};
        case Arrangement::post_norm:
            return PostNormBlock{sublayers, norm, norm};
        case Arrangement::res_post_norm:
            return ResPostNormBlock{sublayers, norm, norm};
        case Arrangement::sandwich:
            return SandwichBlock{sublayers, norm, norm, norm, norm};
        case Arrangement::parallel:
            return ParallelBlock{sublayers, norm};
    }
    throw std::invalid_argument("arranged: there is no such arrangement");
}

Sublayers scaled_for_depth(Sublayers sublayers, std::size_t num_hidden_layers) {
    require(num_hidden_layers > 0, "scaled_for_depth: a model needs a layer, not {}",
            num_hidden_layers);
    const Real factor = 1 / std::sqrt(static_cast<Real>(2 * num_hidden_layers));
    for (Linear* last : {&sublayers.self_attn.projections.o_proj, &sublayers.mlp.down_proj}) {
        last->weight = last->weight * factor;
        if (last->bias) last->bias = *last->bias * factor;
    }
    return sublayers;
}

}  // namespace llm
