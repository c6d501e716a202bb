#include "chapters/19_latent_attention/attention_cost.hpp"

#include <algorithm>

#include "chapters/19_latent_attention/absorbed_attention.hpp"

namespace llm {

AttentionCost attention_cost(const Config& config, std::uint64_t seq_len) {
    const std::uint64_t C = config.hidden_size, H = config.num_attention_heads;
    const std::uint64_t num_kv_heads = config.num_key_value_heads, D = config.head_dim;
    const std::uint64_t parameters = C * D * (2 * H + 2 * num_kv_heads);
    const std::uint64_t flops_per_key = 4 * H * D;
    return {2 * num_kv_heads * D, parameters,
            seq_len * (2 * parameters + seq_len * flops_per_key),
            2 * parameters + seq_len * flops_per_key};
}

AttentionCost attention_cost(const LatentSizes& sizes, std::uint64_t seq_len) {
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = sizes;
    const std::uint64_t query_width = std::uint64_t{H} * (Dn + Dr);
    const std::uint64_t query_parameters =
        q_lora_rank ? *q_lora_rank * (C + query_width) : C * query_width;
    // Without kv_b_proj, which is a part of the two orders.
    const std::uint64_t others = query_parameters + std::uint64_t{C} * (R + Dr) + H * Dv * C;
    const auto flops = [&](std::uint64_t new_tokens) {
        return 2 * others * new_tokens + std::min(expanded_flops(sizes, new_tokens, seq_len),
                                                  absorbed_flops(sizes, new_tokens, seq_len));
    };
    return {R + Dr, others + std::uint64_t{H} * (Dn + Dv) * R, flops(seq_len), flops(1)};
}

}  // namespace llm
