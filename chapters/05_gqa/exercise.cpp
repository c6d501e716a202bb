#include "chapters/05_gqa/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 5.1 — find the bug. With heads of 4 numbers you would hardly notice. With 128, every
// query looks at one key only.
Matrix scaled_scores(const Matrix& queries, const Matrix& keys) {
    return xt::linalg::dot(queries, xt::transpose(keys));
}

// Exercise 5.2 — find the bug. The weights of visible keys no longer add up to 1, and those of
// hidden keys are not even numbers you would want.
Matrix masked_weights(const Matrix& scores, const Matrix& mask) {
    const Matrix weights = softmax(scores);
    return weights + mask;
}

// Exercise 5.3 — find the bug. Everything adds up to 1, but along the wrong axis: each key
// distributes itself over the queries.
Matrix weights_over_keys(const Matrix& scores) {
    const Matrix by_key = xt::transpose(scores);
    const Matrix weights = softmax(by_key);
    return xt::transpose(weights);
}

// Exercise 5.4 — find the bug. The shape is right, and with one key/value head so is the rest.
// With 4 query heads and 2 key/value heads, heads 1 and 2 read the wrong one.
Tensor4 heads_for_queries(const Tensor4& states, std::size_t num_key_value_groups) {
    const auto [batch_size, num_kv_heads, kv_len, head_dim] = dims(states);
    Tensor4 result =
        xt::zeros<Real>({batch_size, num_kv_heads * num_key_value_groups, kv_len, head_dim});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_kv_heads * num_key_value_groups; ++h)
            xt::view(result, b, h) = xt::view(states, b, h % num_kv_heads);
    return result;
}

// Exercise 5.5 — find the bug. The training loss falls to almost nothing within minutes.
Matrix mask_for_attention(std::size_t seq_len) {
    const Matrix ones = xt::ones<Real>({seq_len, seq_len});
    const Matrix all_hidden = ones * -infinity;
    return xt::triu(all_hidden, 2);
}

// Exercise 5.6 — find the bug. o_proj gets numbers of several tokens in one row.
Tensor3 layer_output(const Tensor4& context, const Linear& o_proj) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(context);
    return o_proj(reshape(context, {batch_size, seq_len, num_heads * head_dim}));
}

// Exercise 5.7 — write grouped_scores without repeating a key. The G query heads of a group are
// neighbours in memory: read them as one matrix of G*T rows and multiply it once with the keys
// of the group. Divide by √D.
Tensor4 grouped_scores([[maybe_unused]] const Tensor4& queries,
                       [[maybe_unused]] const Tensor4& keys) {
    TODO("grouped_scores");
}

// Exercise 5.8 — write log_softmax: the logarithm of the softmax, right also where the softmax
// itself is too small for a float. (Losses are made of it: chapter 11.)
Matrix log_softmax([[maybe_unused]] const Matrix& scores) { TODO("log_softmax"); }

// Exercise 5.9 — write sliding_window_attention: grouped queries, causal, and no key further
// back than window - 1 steps.
Attention sliding_window_attention([[maybe_unused]] const Tensor4& queries,
                                   [[maybe_unused]] const Tensor4& keys,
                                   [[maybe_unused]] const Tensor4& values,
                                   [[maybe_unused]] std::size_t window) {
    TODO("sliding_window_attention");
}

}  // namespace exercise
