#include "chapters/01_masking/masking.hpp"

namespace llm {

Config complete(Config config, std::size_t seq_len) {
    const std::size_t heads = config.num_attention_heads;
    require(config.hidden_size > 0 && heads > 0 && config.num_key_value_heads > 0,
            "config: hidden_size {}, num_attention_heads {} and num_key_value_heads {} must "
            "all be positive",
            config.hidden_size, heads, config.num_key_value_heads);
    require(heads % config.num_key_value_heads == 0,
            "config: {} key/value heads do not divide {} query heads",
            config.num_key_value_heads, heads);
    require(config.head_dim > 0 || config.hidden_size % heads == 0,
            "config: {} query heads do not divide a hidden size of {}", heads,
            config.hidden_size);
    require(seq_len <= config.max_position_embeddings,
            "config: a sequence of {} tokens exceeds max_position_embeddings of {}", seq_len,
            config.max_position_embeddings);
    if (config.head_dim == 0) config.head_dim = config.hidden_size / heads;
    return config;
}

IdMatrix position_ids(std::size_t batch_size, std::size_t seq_len) {
    const IdVector counted = xt::arange<Id>(static_cast<Id>(seq_len));  // (T)
    return xt::repeat(reshape(counted, {1, seq_len}), batch_size, 0);   // (B, T)
}

Matrix causal_mask(std::size_t query_len, std::size_t kv_len) {
    require(query_len <= kv_len, "causal_mask: {} queries cannot be the last of {} positions",
            query_len, kv_len);

    // Query t stands at position past + t, so key past + t + 1 is the first of its future.
    const std::size_t past = kv_len - query_len;
    const Matrix all_hidden = xt::ones<Real>({query_len, kv_len}) * -infinity;  // (T, S)
    return xt::triu(all_hidden, static_cast<int>(past + 1));                    // (T, S)
}

Tensor4 expand_mask(const Matrix& mask, std::size_t batch_size) {
    const auto [query_len, kv_len] = dims(mask);
    const Tensor4 one_for_all = reshape(mask, {1, 1, query_len, kv_len});
    return xt::repeat(one_for_all, batch_size, 0);  // (B, 1, T, S)
}

Tensor4 hide_padding(const Tensor4& mask, const IdMatrix& token_mask) {
    const auto [batch_size, heads, query_len, kv_len] = dims(mask);
    require(token_mask.shape() == std::array{batch_size, kv_len},
            "hide_padding: a token mask of {} does not fit a mask of {}", token_mask.shape(),
            mask.shape());

    // Padding is nobody's key: hide its whole column, whatever the query.
    Tensor4 result = mask;  // (B, 1, T, S)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t s = 0; s < kv_len; ++s)
            if (token_mask(b, s) == 0) xt::view(result, b, xt::all(), xt::all(), s) = -infinity;
    return result;
}

IdMatrix position_ids(const IdMatrix& token_mask) {
    const auto [batch_size, kv_len] = dims(token_mask);
    IdMatrix positions = xt::ones<Id>({batch_size, kv_len});  // (B, S)

    // Count real tokens only, so that padding on the left does not push a sentence forward.
    for (std::size_t b = 0; b < batch_size; ++b) {
        Id next = 0;
        for (std::size_t s = 0; s < kv_len; ++s)
            if (token_mask(b, s) != 0) positions(b, s) = next++;
    }
    return positions;
}

Matrix softmax(const Matrix& scores) {
    // Subtract each row's maximum: exp(1000) overflows, exp(1000 - 1000) does not, and the
    // quotient at the end is the same. (xt::amax never goes below the lowest finite number,
    // so that a row of -inf alone stays -inf here: -inf - (-inf) would be NaN.)
    const Matrix highest = xt::amax(scores, {1}, xt::keep_dims);  // (N, 1)
    const Matrix powers = xt::exp(scores - highest);              // (N, S)

    // Divide by the row's sum. A sum of 0 means that nothing is visible: the row stays 0.
    const Matrix sums = xt::sum(powers, {1}, xt::keep_dims);  // (N, 1)
    const Matrix divisors = xt::where(xt::equal(sums, Real(0)), Real(1), sums);
    return powers / divisors;  // (N, S)
}

Tensor4 softmax(const Tensor4& scores) {
    const auto [batch_size, heads, query_len, kv_len] = dims(scores);
    const Matrix rows = reshape(scores, {batch_size * heads * query_len, kv_len});
    return reshape(softmax(rows), {batch_size, heads, query_len, kv_len});
}

}  // namespace llm
