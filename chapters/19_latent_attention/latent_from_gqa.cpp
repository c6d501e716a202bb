#include "chapters/19_latent_attention/latent_from_gqa.hpp"

#include <cmath>

namespace llm {

LatentAttention latent_from_gqa(const AttentionLayer& layer) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
    require(std::holds_alternative<NoQKNorm>(layer.qk_norm) && !q_proj.bias && !k_proj.bias &&
                !v_proj.bias,
            "latent_from_gqa: a QK norm and biases are not supported");
    const std::size_t num_heads = layer.num_attention_heads;
    const std::size_t group_size = num_heads / layer.num_key_value_heads;  // G
    const std::size_t head_dim = q_proj.weight.shape(0) / num_heads;       // D
    const std::size_t width = k_proj.weight.shape(0);                      // Hkv D

    // Compress: the keys of all heads, then their values.
    Linear compression{xt::concatenate(xt::xtuple(k_proj.weight, v_proj.weight), 0),
                       std::nullopt};  // (2 Hkv D, C)

    // Expand: head h selects the key and the value of head h / G.
    Linear selection{xt::zeros<Real>({num_heads * 2 * head_dim, 2 * width}), std::nullopt};
    for (std::size_t h = 0; h < num_heads; ++h)
        for (std::size_t i = 0; i < head_dim; ++i) {
            const std::size_t source = h / group_size * head_dim + i;
            selection.weight(h * 2 * head_dim + i, source) = 1;
            selection.weight(h * 2 * head_dim + head_dim + i, width + source) = 1;
        }

    const Real eps = Real(1e12);
    const RMSNorm no_norm{std::sqrt(eps) * xt::ones<Real>({2 * width}), eps};
    return {num_heads, head_dim,
            0,         head_dim,
            q_proj,    std::move(compression),
            no_norm,   std::move(selection),
            o_proj,    1 / std::sqrt(static_cast<Real>(head_dim))};
}

}  // namespace llm
