#include "chapters/08_pre_vs_post_norm/block.hpp"

#include <cmath>
#include <stdexcept>

namespace llm {

Block make_block(NormPlacement norm_placement, const AttentionLayer& self_attn,
                 const GatedMlp& mlp, Real rms_norm_eps) {
    const RMSNorm norm =
        make_rms_norm(self_attn.projections.q_proj.weight.shape(1), rms_norm_eps);
    switch (norm_placement) {
        case NormPlacement::pre_norm:
            return PreNormBlock{self_attn, mlp, norm, norm};
        case NormPlacement::post_norm:
            return PostNormBlock{self_attn, mlp, norm, norm};
        case NormPlacement::res_post_norm:
            return ResPostNormBlock{self_attn, mlp, norm, norm};
        case NormPlacement::sandwich:
            return SandwichBlock{self_attn, mlp, norm, norm, norm, norm};
        case NormPlacement::parallel:
            return ParallelBlock{self_attn, mlp, norm};
    }
    throw ValueError("make_block: unknown norm placement");
}

Tensor3 apply(const Block& block, const Tensor3& hidden_states, const AttentionInputs& inputs) {
    return std::visit([&](const auto& any) { return any(hidden_states, inputs).hidden_states; },
                      block);
}

Linear scale_for_depth(const Linear& output_projection, std::size_t num_hidden_layers) {
    require(num_hidden_layers > 0, "scale_for_depth: a model needs at least one layer, not {}",
            num_hidden_layers);
    const Real factor = 1 / std::sqrt(static_cast<Real>(2 * num_hidden_layers));
    Linear scaled = output_projection;
    scaled.weight = scaled.weight * factor;
    if (scaled.bias) scaled.bias = *scaled.bias * factor;
    return scaled;
}

}  // namespace llm
