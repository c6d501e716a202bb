#include "chapters/05_gqa/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 5.1 — find the bug. With a head_dim of 4 the result is hardly different. With 128,
// nearly all attention weight goes to one key.
Matrix scaled_scores(const Matrix& queries, const Matrix& keys) {
    return xt::linalg::dot(queries, xt::transpose(keys));
}

// Exercise 5.2 — find the bug. The weights of the unmasked keys do not sum to 1, and the
// weights of masked keys are -inf.
Matrix masked_weights(const Matrix& scores, const Matrix& mask) {
    const Matrix weights = softmax(scores);
    return weights + mask;
}

// Exercise 5.3 — find the bug. The weights sum to 1, but over the wrong axis: for each key,
// over the queries.
Matrix weights_over_keys(const Matrix& scores) {
    const Matrix by_key = xt::transpose(scores);
    const Matrix weights = softmax(by_key);
    return xt::transpose(weights);
}

// Exercise 5.4 — find the bug. The shape is right, and with one key/value head the values are,
// too. With 4 query heads and 2 key/value heads, query heads 1 and 2 use the wrong one.
Tensor4 repeat_kv_heads(const Tensor4& states, std::size_t num_key_value_groups) {
    const auto [batch_size, num_kv_heads, kv_len, head_dim] = dims(states);
    Tensor4 result =
        xt::zeros<Real>({batch_size, num_kv_heads * num_key_value_groups, kv_len, head_dim});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_kv_heads * num_key_value_groups; ++h)
            xt::view(result, b, h) = xt::view(states, b, h % num_kv_heads);
    return result;
}

// Exercise 5.5 — find the bug. The training loss falls to nearly 0 within minutes.
Matrix decoder_mask(std::size_t seq_len) {
    const Matrix ones = xt::ones<Real>({seq_len, seq_len});
    const Matrix all_masked = ones * -infinity;
    return xt::triu(all_masked, 2);
}

// Exercise 5.6 — find the bug. Each row that o_proj receives mixes features of several tokens.
Tensor3 merge_and_project(const Tensor4& context, const Linear& o_proj) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(context);
    return o_proj(reshape(context, {batch_size, seq_len, num_heads * head_dim}));
}

// Exercise 5.7 — write grouped_scores without repeating a key. The G query heads of a group are
// contiguous in memory: view them as one matrix of G*T rows and multiply it once by the keys of
// the group. Divide by √D.
Tensor4 grouped_scores([[maybe_unused]] const Tensor4& queries,
                       [[maybe_unused]] const Tensor4& keys) {
    TODO("grouped_scores");
}

// Exercise 5.8 — write log_softmax: the logarithm of the softmax, accurate even where the
// softmax itself underflows to 0. (The cross-entropy loss uses it: chapter 12.)
Matrix log_softmax([[maybe_unused]] const Matrix& scores) { TODO("log_softmax"); }

// Exercise 5.9 — write sliding_window_attention: causal grouped-query attention in which each
// query attends to itself and to the window - 1 tokens before it.
AttentionOutput sliding_window_attention([[maybe_unused]] const Tensor4& queries,
                                         [[maybe_unused]] const Tensor4& keys,
                                         [[maybe_unused]] const Tensor4& values,
                                         [[maybe_unused]] std::size_t window) {
    TODO("sliding_window_attention");
}

}  // namespace exercise
