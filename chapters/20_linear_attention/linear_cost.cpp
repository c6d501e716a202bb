#include "chapters/20_linear_attention/linear_cost.hpp"

#include <algorithm>

namespace llm {

std::uint64_t linear_multiplications(const LinearSizes& sizes) {
    const auto& [hidden_size, Hk, Hv, Dk, Dv, J] = sizes;
    const std::uint64_t C = hidden_size, value_width = std::uint64_t{Hv} * Dv;
    const std::uint64_t width = 2 * std::uint64_t{Hk} * Dk + value_width;
    // in_proj_qkv, in_proj_z, in_proj_b and in_proj_a, conv1d, out_proj.
    return C * width + C * value_width + 2 * C * Hv + width * J + value_width * C;
}

std::uint64_t linear_parameters(const LinearSizes& sizes) {
    return linear_multiplications(sizes) + 2 * sizes.num_value_heads + sizes.value_head_dim;
}

std::uint64_t state_numbers(const LinearSizes& sizes) {
    const auto& [C, Hk, Hv, Dk, Dv, J] = sizes;
    const std::uint64_t value_width = std::uint64_t{Hv} * Dv;
    return value_width * Dk + (J - 1) * (2 * std::uint64_t{Hk} * Dk + value_width);
}

std::uint64_t softmax_flops(std::uint64_t seq_len, std::uint64_t head_dim) {
    return 4 * seq_len * seq_len * head_dim;
}

std::uint64_t recurrent_flops(std::uint64_t seq_len, std::uint64_t key_head_dim,
                              std::uint64_t value_head_dim) {
    // Decay; read with the key, write, read with the query.
    return seq_len * 7 * key_head_dim * value_head_dim;
}

std::uint64_t chunked_flops(std::uint64_t seq_len, std::uint64_t key_head_dim,
                            std::uint64_t value_head_dim, std::uint64_t chunk_size) {
    const std::uint64_t Dk = key_head_dim, Dv = value_head_dim;
    std::uint64_t flops = 0;
    for (std::uint64_t first = 0; first < seq_len; first += chunk_size) {
        const std::uint64_t c = std::min(chunk_size, seq_len - first);
        // Key and query products, and weights · written; W and U by substitution, half of the
        // products; W S, Q S and the new state.
        flops += 2 * c * c * (2 * Dk + Dv) + c * c * (Dk + Dv) + 6 * c * Dk * Dv;
    }
    return flops;
}

}  // namespace llm
