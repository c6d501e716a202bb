#include "chapters/03_head_splitting/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 3.1 — predict: a sequence has 3 tokens of 8 features; feature f of token t has the
// value 100 * t + f. It is split into 2 heads. Which value has element (0, 1, 0, 1) of the
// heads, and which value has it if the sequence is reshaped to the same shape instead?
Vector predicted_elements() {
    TODO("predicted_elements");
    // return {?, ?};
}

// Exercise 3.2 — predict: 12 query heads share 4 key/value heads. Which key/value heads do the
// query heads 1, 4, 5 and 9 use?
Vector predicted_kv_heads() {
    TODO("predicted_kv_heads");
    // return {?, ?, ?, ?};
}

// Exercise 3.3 — find the bug. In GPT-NeoX, one linear layer computes queries, keys and values.
// For each head in turn, its output has D features of the query, D of the key and D of the
// value. The function returns the queries.
Tensor4 fused_queries(const Tensor3& fused, std::size_t num_heads) {
    const std::size_t width = fused.shape(2) / 3;  // H*D
    const Tensor3 queries = xt::view(fused, xt::all(), xt::all(), xt::range(0, width));
    return split_heads(queries, num_heads);
}

// Exercise 3.4 — write interleave_heads: like merge_heads, but the features of the heads
// alternate, so that feature d of head h gets index d*H + h.
Tensor3 interleave_heads([[maybe_unused]] const Tensor4& heads) { TODO("interleave_heads"); }

// Exercise 3.5 — write project_one_head: the queries of one head, without computing the
// others.
Tensor3 project_one_head([[maybe_unused]] const Tensor3& hidden_states,
                         [[maybe_unused]] const Linear& q_proj,
                         [[maybe_unused]] std::size_t head,
                         [[maybe_unused]] std::size_t head_dim) {
    TODO("project_one_head");
}

}  // namespace exercise
