#include "chapters/17_long_context/attention_pattern.hpp"

#include <algorithm>

#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// Is a key that is not in the future visible to the query? One overload per pattern.
bool sees(const FullAttention&, Id, Id) { return true; }

bool sees(const SlidingWindow& pattern, Id query, Id key) {
    return query - key < static_cast<Id>(pattern.window);
}

bool sees(const ChunkedAttention& pattern, Id query, Id key) {
    const Id chunk_size = static_cast<Id>(pattern.chunk_size);
    return query / chunk_size == key / chunk_size;
}

bool sees(const SinksAndWindow& pattern, Id query, Id key) {
    return key < static_cast<Id>(pattern.num_sinks) ||
           query - key < static_cast<Id>(pattern.window);
}

void check(const AttentionPattern& pattern) {
    if (const auto* sliding = std::get_if<SlidingWindow>(&pattern))
        require(sliding->window > 0, "attention_pattern: a window needs at least 1 token");
    if (const auto* chunked = std::get_if<ChunkedAttention>(&pattern))
        require(chunked->chunk_size > 0, "attention_pattern: a chunk needs at least 1 token");
    if (const auto* sinks = std::get_if<SinksAndWindow>(&pattern))
        require(sinks->window > 0, "attention_pattern: a window needs at least 1 token");
}

}  // namespace

bool attends(const AttentionPattern& pattern, Id query_position, Id key_position) {
    if (key_position > query_position) return false;  // causal
    return std::visit([&](const auto& p) { return sees(p, query_position, key_position); },
                      pattern);
}

Matrix pattern_mask(const AttentionPattern& pattern, const IdVector& query_positions,
                    const IdVector& key_positions) {
    check(pattern);
    Matrix mask = xt::zeros<Real>({query_positions.size(), key_positions.size()});  // (T, S)
    for (std::size_t t = 0; t < query_positions.size(); ++t)
        for (std::size_t s = 0; s < key_positions.size(); ++s)
            if (!attends(pattern, query_positions(t), key_positions(s))) mask(t, s) = -infinity;
    return mask;
}

Tensor4 pattern_mask(const AttentionPattern& pattern, const IdMatrix& query_positions,
                     const IdMatrix& key_positions) {
    const auto [batch_size, query_len] = dims(query_positions);
    const std::size_t kv_len = key_positions.shape(1);
    require(key_positions.shape(0) == batch_size,
            "attention_pattern: query positions of {} do not match key positions of {}",
            query_positions.shape(), key_positions.shape());
    Tensor4 mask(std::array{batch_size, std::size_t{1}, query_len, kv_len});  // (B, 1, T, S)
    for (std::size_t b = 0; b < batch_size; ++b) {
        const IdVector queries = xt::view(query_positions, b, xt::all());  // (T)
        const IdVector keys = xt::view(key_positions, b, xt::all());       // (S)
        const Matrix sequence_mask = pattern_mask(pattern, queries, keys);
        std::copy(sequence_mask.begin(), sequence_mask.end(),
                  mask.data() + b * sequence_mask.size());
    }
    return mask;
}

Matrix pattern_mask(const AttentionPattern& pattern, std::size_t query_len,
                    std::size_t kv_len) {
    require(query_len <= kv_len,
            "attention_pattern: {} queries cannot be the last of {} positions", query_len,
            kv_len);
    const IdVector keys = xt::arange<Id>(static_cast<Id>(kv_len));                   // (S)
    const IdVector queries = xt::view(keys, xt::range(kv_len - query_len, kv_len));  // (T)
    return pattern_mask(pattern, queries, keys);
}

std::vector<AttentionPattern> layer_patterns(std::size_t num_hidden_layers,
                                             const AttentionPattern& local,
                                             std::size_t full_every) {
    std::vector<AttentionPattern> patterns(num_hidden_layers, local);
    if (full_every == 0) return patterns;
    for (std::size_t n = full_every; n <= num_hidden_layers; n += full_every)
        patterns[n - 1] = FullAttention{};
    return patterns;
}

Matrix receptive_field(const std::vector<AttentionPattern>& patterns, std::size_t seq_len) {
    // Before the first layer, each token depends on itself only.
    Matrix reached = xt::eye<Real>(seq_len);  // (T, T)
    for (const AttentionPattern& pattern : patterns) {
        // A token now depends on everything that the tokens it attends to depend on.
        Matrix visible = xt::zeros<Real>({seq_len, seq_len});  // (T, T)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t s = 0; s <= t; ++s)
                visible(t, s) = attends(pattern, static_cast<Id>(t), static_cast<Id>(s));
        reached = matmul(visible, reached);
        for (Real& paths : reached) paths = std::min(paths, Real(1));
    }
    return reached;
}

}  // namespace llm
