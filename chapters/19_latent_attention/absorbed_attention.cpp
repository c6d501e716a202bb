#include "chapters/19_latent_attention/absorbed_attention.hpp"

#include "common/tensors/head_view.hpp"

namespace llm {
namespace {

// W_UK of head h, (Dn, R), or W_UV, (Dv, R): rows of kv_b_proj.
ConstMatrixView up_projection(const LatentAttention& attention, std::size_t h, bool of_values) {
    const std::size_t Dn = attention.qk_nope_head_dim, Dv = attention.v_head_dim;
    const ConstMatrixView head =
        view_of(attention.kv_b_proj.weight).rows(h * (Dn + Dv), Dn + Dv);
    return of_values ? head.rows(Dn, Dv) : head.rows(0, Dn);
}

}  // namespace

Tensor4 absorb_queries(const LatentAttention& attention, const Tensor4& queries) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(queries);
    const std::size_t Dn = attention.qk_nope_head_dim;
    Tensor4 absorbed(std::array{batch_size, num_heads, seq_len, attention.kv_lora_rank()});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)  // (T, Dn) (Dn, R)
            matmul(head_view(queries, b, h).columns(0, Dn), up_projection(attention, h, false),
                   head_view(absorbed, b, h));
    return join_features(absorbed, features(queries, Dn, attention.qk_rope_head_dim));
}

Tensor4 expand_context(const LatentAttention& attention, const Tensor4& latent_context) {
    const auto [batch_size, num_heads, seq_len, rank] = dims(latent_context);
    Tensor4 context(std::array{batch_size, num_heads, seq_len, attention.v_head_dim});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h)  // (T, R) (Dv, R)ᵀ
            matmul_transposed(head_view(latent_context, b, h),
                              up_projection(attention, h, true), head_view(context, b, h));
    return context;
}

AttentionOutput absorbed_attention(const LatentAttention& attention, const Tensor4& queries,
                                   const Tensor4& entries, const Tensor4& mask) {
    const Tensor4 latents = features(entries, 0, attention.kv_lora_rank());  // (B, 1, S, R)
    AttentionOutput result =
        grouped_query_attention({absorb_queries(attention, queries), entries, latents}, mask,
                                ScoreMod{attention.scale});
    return {std::move(result.weights), expand_context(attention, result.context)};
}

std::uint64_t expanded_flops(const LatentSizes& sizes, std::uint64_t seq_len,
                             std::uint64_t kv_len) {
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = sizes;
    const std::uint64_t expansion = kv_len * R * (Dn + Dv);
    const std::uint64_t scores_and_context = seq_len * kv_len * (Dn + Dr + Dv);
    return 2 * H * (expansion + scores_and_context);
}

std::uint64_t absorbed_flops(const LatentSizes& sizes, std::uint64_t seq_len,
                             std::uint64_t kv_len) {
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = sizes;
    const std::uint64_t absorption = seq_len * R * (Dn + Dv);
    const std::uint64_t scores_and_context = seq_len * kv_len * (R + Dr + R);
    return 2 * H * (absorption + scores_and_context);
}

bool absorbing_is_cheaper(const LatentSizes& sizes, std::uint64_t seq_len,
                          std::uint64_t kv_len) {
    return absorbed_flops(sizes, seq_len, kv_len) < expanded_flops(sizes, seq_len, kv_len);
}

}  // namespace llm
