#include "chapters/01_masking/masking.hpp"
#include "chapters/26_encoder_decoder/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 26.1 — predict: 8 buckets on each side have one distance each. 20 is 2.6 steps of 8
// beyond 8; the last bucket has all that is farther.
IdVector predicted_buckets() { return {3, 19, 10, 31}; }

// Exercise 26.2 — predict: 2 * 6 * 8 * 64 numbers for each token of the source, which stay, and
// for each one of the decoder.
IdVector predicted_cached() { return {675840, 737280}; }

// Exercise 26.3 — find the bug. The new tokens are not the first ones: query t has position
// kv_len - query_len + t.
Tensor4 position_bias(const RelativePositionBias& bias, std::size_t query_len,
                      std::size_t kv_len) {
    const auto [num_buckets, num_heads] = dims(bias.weight);
    Tensor4 result(std::array{std::size_t{1}, num_heads, query_len, kv_len});
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s) {
            const auto distance = static_cast<std::int64_t>(s) -
                                  static_cast<std::int64_t>(kv_len - query_len + t);
            const std::size_t bucket = relative_position_bucket(distance, bias.bidirectional,
                                                                num_buckets, bias.max_distance);
            for (std::size_t h = 0; h < num_heads; ++h)
                result(0, h, t, s) = bias.weight(bucket, h);
        }
    return result;
}

// Exercise 26.4 — write num_segmentations: the lattice of Viterbi, with a sum instead of a
// maximum.
std::uint64_t num_segmentations(const std::string& word, const std::set<std::string>& tokens) {
    std::vector<std::uint64_t> ways(word.size() + 1);  // to write the first bytes of the word
    ways[0] = 1;
    for (std::size_t begin = 0; begin < word.size(); ++begin)
        for (const std::string& token : tokens)
            if (!token.empty() && word.compare(begin, token.size(), token) == 0)
                ways[begin + token.size()] += ways[begin];
    return ways.back();
}

// Exercise 26.5 — write cross-attention: keys and values depend on the text alone.
EncodedKeys project_text(const CrossAttentionHead& head, const Matrix& encoder_states) {
    return {head.k_proj(encoder_states), head.v_proj(encoder_states)};
}

Matrix cross_weights(const Matrix& queries, const Matrix& keys, const IdVector& padding_mask) {
    Matrix scores = attention_scores(queries, keys);  // (T, S)
    for (std::size_t t = 0; t < scores.shape(0); ++t)
        for (std::size_t s = 0; s < scores.shape(1); ++s)
            if (padding_mask(s) == 0) scores(t, s) = -infinity;
    return softmax(scores);
}

Matrix cross_attention(const CrossAttentionHead& head, const Matrix& hidden_states,
                       const Matrix& encoder_states, const IdVector& padding_mask,
                       std::optional<EncodedKeys>& cache) {
    if (!cache) cache = project_text(head, encoder_states);
    const Matrix queries = head.q_proj(hidden_states);  // (T, D)
    const Matrix weights = cross_weights(queries, cache->keys, padding_mask);
    const Matrix context = matmul(weights, cache->values);  // (T, D)
    return head.o_proj(context);
}

// q_proj and o_proj of the token, its products with S keys and S values; with an empty cache,
// also k_proj and v_proj of S tokens.
std::uint64_t multiply_adds(std::uint64_t hidden_size, std::uint64_t head_dim,
                            std::uint64_t text_len, bool cache_is_full) {
    const std::uint64_t token = 2 * hidden_size * head_dim + 2 * text_len * head_dim;
    return token + (cache_is_full ? 0 : 2 * text_len * hidden_size * head_dim);
}

}  // namespace exercise
