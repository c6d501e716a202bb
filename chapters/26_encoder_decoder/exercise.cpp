#include "chapters/26_encoder_decoder/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 26.1 — predict: an encoder has 32 buckets and distances up to 128. In which bucket
// is a key 3 tokens before its query, one 3 tokens after it, one 20 tokens before it and one
// 1,000 tokens after it?
IdVector predicted_buckets() {
    TODO("predicted_buckets");
    // return {?, ?, ?, ?};
}

// Exercise 26.2 — predict: a decoder has 6 layers with 8 heads of 64 features. The source has
// 100 tokens, and the decoder has read 10 of its own: the start token and what it wrote. How
// many numbers are in its caches, and how many when it has read 20?
IdVector predicted_cached() {
    TODO("predicted_cached");
    // return {?, ?};
}

// Exercise 26.3 — find the bug. Without a cache, the decoder writes the right text. With one,
// only the first token is right.
Tensor4 position_bias(const RelativePositionBias& bias, std::size_t query_len,
                      std::size_t kv_len) {
    const auto [num_buckets, num_heads] = dims(bias.weight);
    Tensor4 result(std::array{std::size_t{1}, num_heads, query_len, kv_len});
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s) {
            const auto distance = static_cast<std::int64_t>(s) - static_cast<std::int64_t>(t);
            const std::size_t bucket = relative_position_bucket(distance, bias.bidirectional,
                                                                num_buckets, bias.max_distance);
            for (std::size_t h = 0; h < num_heads; ++h)
                result(0, h, t, s) = bias.weight(bucket, h);
        }
    return result;
}

// Exercise 26.4 — write num_segmentations: in how many ways can Unigram write a word? A word of
// 60 letters can have more segmentations than you can list.
std::uint64_t num_segmentations([[maybe_unused]] const std::string& word,
                                [[maybe_unused]] const std::set<std::string>& tokens) {
    TODO("num_segmentations");
}

// Exercise 26.5 — write cross-attention with its cache from an empty file, in four steps. What
// is computed once for a text?
EncodedKeys project_text([[maybe_unused]] const CrossAttentionHead& head,
                         [[maybe_unused]] const Matrix& encoder_states) {
    TODO("project_text");
}

// Step 2: the weights of one head. Each row sums to 1, and padding has none.
Matrix cross_weights([[maybe_unused]] const Matrix& queries,
                     [[maybe_unused]] const Matrix& keys,
                     [[maybe_unused]] const IdVector& padding_mask) {
    TODO("cross_weights");
}

// Step 3: the layer, with the cache.
Matrix cross_attention([[maybe_unused]] const CrossAttentionHead& head,
                       [[maybe_unused]] const Matrix& hidden_states,
                       [[maybe_unused]] const Matrix& encoder_states,
                       [[maybe_unused]] const IdVector& padding_mask,
                       [[maybe_unused]] std::optional<EncodedKeys>& cache) {
    TODO("cross_attention");
}

// Step 4: what one token costs.
std::uint64_t multiply_adds([[maybe_unused]] std::uint64_t hidden_size,
                            [[maybe_unused]] std::uint64_t head_dim,
                            [[maybe_unused]] std::uint64_t text_len,
                            [[maybe_unused]] bool cache_is_full) {
    TODO("multiply_adds");
}

}  // namespace exercise
