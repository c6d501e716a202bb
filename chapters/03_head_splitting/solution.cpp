#include "chapters/03_head_splitting/exercise.hpp"

namespace exercise {

// Exercise 3.1 — split each token's vector, the last axis, then swap the token and head axes.
Tensor4 split_heads(const Tensor3& states, std::size_t num_heads) {
    const auto [batch_size, seq_len, width] = dims(states);
    const Tensor4 by_token =
        reshape(states, {batch_size, seq_len, num_heads, width / num_heads});
    return xt::transpose(by_token, {0, 2, 1, 3});
}

// Exercise 3.2 — move the head axis last before the reshape: the last axis varies fastest.
Tensor3 interleave_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    const Tensor4 alternating = xt::transpose(heads, {0, 2, 3, 1});  // (B, T, D, H)
    return reshape(alternating, {batch_size, seq_len, head_dim * num_heads});
}

// Exercise 3.3 — swap the axes back first, so that the heads of each token are adjacent.
Tensor3 merge_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    const Tensor4 by_token = xt::transpose(heads, {0, 2, 1, 3});
    return reshape(by_token, {batch_size, seq_len, num_heads * head_dim});
}

// Exercise 3.4 — rows h*D to h*D + D - 1 give head h: each head is a linear layer of its own.
Tensor3 project_one_head(const Tensor3& hidden_states, const Linear& q_proj, std::size_t head,
                         std::size_t head_dim) {
    auto rows = xt::range(head * head_dim, (head + 1) * head_dim);
    Linear one_head{xt::view(q_proj.weight, rows, xt::all()), std::nullopt};
    if (q_proj.bias) one_head.bias = xt::view(*q_proj.bias, rows);
    return one_head(hidden_states);
}

}  // namespace exercise
