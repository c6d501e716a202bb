#include "chapters/03_head_splitting/head_splitting.hpp"

#include "common/tensors/permute.hpp"

namespace llm {

Tensor4 split_heads(const Tensor3& states, std::size_t num_heads) {
    const auto [batch_size, seq_len, width] = dims(states);
    require(num_heads > 0 && width % num_heads == 0,
            "split_heads: {} heads do not divide a width of {}", num_heads, width);

    // View each token's vector as H rows of D features. Their order in memory stays.
    const Tensor4 by_token =  // (B, T, H, D)
        reshape(states, {batch_size, seq_len, num_heads, width / num_heads});

    // Swap token and head axes. This is the step that a second reshape cannot replace.
    return swap_axes_1_and_2(by_token);  // (B, H, T, D)
}

Tensor3 merge_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);

    // Undo the two steps in reverse order: swap the axes back, then concatenate the heads.
    Tensor4 by_token = swap_axes_1_and_2(heads);  // (B, T, H, D)
    return reshape(std::move(by_token),
                   {batch_size, seq_len, num_heads * head_dim});  // (B, T, H*D)
}

std::size_t num_key_value_groups(const Config& config) {
    const std::size_t heads = config.num_attention_heads;
    const std::size_t kv_heads = config.num_key_value_heads;
    require(kv_heads > 0 && heads % kv_heads == 0,
            "num_key_value_groups: {} key/value heads do not divide {} query heads", kv_heads,
            heads);
    return heads / kv_heads;
}

}  // namespace llm
