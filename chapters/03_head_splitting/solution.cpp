#include "chapters/03_head_splitting/exercise.hpp"

namespace exercise {

// Exercise 3.1 — element (0, 1, 0, 1) is feature 1 of token 0 in head 1, which is feature
// 1 * 4 + 1 = 5 of that token. By the reshape it is the element at offset 1 * 12 + 0 * 4 + 1 =
// 13 of the sequence: feature 5 of token 1.
Vector predicted_elements() { return {5, 105}; }

// Exercise 3.2 — num_key_value_groups is 12 / 4 = 3, so query head h uses head h / 3.
Vector predicted_kv_heads() { return {0, 1, 1, 3}; }

// Exercise 3.3 — the last axis is (H, 3, D), not (3, H, D): split the heads first, and take the
// first third of the features of each.
Tensor4 fused_queries(const Tensor3& fused, std::size_t num_heads) {
    const std::size_t head_dim = fused.shape(2) / (3 * num_heads);
    const Tensor4 heads = split_heads(fused, num_heads);  // (B, H, T, 3*D)
    return xt::view(heads, xt::all(), xt::all(), xt::all(), xt::range(0, head_dim));
}

// Exercise 3.4 — move the head axis last before the reshape: the last axis varies fastest.
Tensor3 interleave_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    const Tensor4 alternating = xt::transpose(heads, {0, 2, 3, 1});  // (B, T, D, H)
    return reshape(alternating, {batch_size, seq_len, head_dim * num_heads});
}

// Exercise 3.5 — rows h*D to h*D + D - 1 give head h: each head is a linear layer of its own.
Tensor3 project_one_head(const Tensor3& hidden_states, const Linear& q_proj, std::size_t head,
                         std::size_t head_dim) {
    auto rows = xt::range(head * head_dim, (head + 1) * head_dim);
    Linear one_head{xt::view(q_proj.weight, rows, xt::all()), std::nullopt};
    if (q_proj.bias) one_head.bias = xt::view(*q_proj.bias, rows);
    return one_head(hidden_states);
}

}  // namespace exercise
