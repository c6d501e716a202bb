#include "chapters/03_head_splitting/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 3.1 — find the bug. The shape is right, but the heads are wrong.
Tensor4 split_heads(const Tensor3& states, std::size_t num_heads) {
    const auto [batch_size, seq_len, width] = dims(states);
    return reshape(states, {batch_size, num_heads, seq_len, width / num_heads});
}

// Exercise 3.2 — write interleave_heads: like merge_heads, but the features of the heads
// alternate, so that feature d of head h gets index d*H + h. Which axis moves, and when?
Tensor3 interleave_heads([[maybe_unused]] const Tensor4& heads) { TODO("interleave_heads"); }

// Exercise 3.3 — find the bug. After attention the heads are concatenated again, but the row of
// token 0 now holds features of token 1.
Tensor3 merge_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    return reshape(heads, {batch_size, seq_len, num_heads * head_dim});
}

// Exercise 3.4 — write project_one_head: the queries of one head, without computing the
// others. Which rows of q_proj.weight (and which elements of its bias) give head h?
Tensor3 project_one_head([[maybe_unused]] const Tensor3& hidden_states,
                         [[maybe_unused]] const Linear& q_proj,
                         [[maybe_unused]] std::size_t head,
                         [[maybe_unused]] std::size_t head_dim) {
    TODO("project_one_head");
}

}  // namespace exercise
