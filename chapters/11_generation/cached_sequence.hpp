// Chapter 11, file 2 of 7: a sequence and its KV cache, in any model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

// One sequence as a batch, PyTorch's unsqueeze(0).
IdMatrix one_sequence(std::span<const Id> ids);  // T -> (1, T)

// The logits of the last position of the first sequence: they predict the next token.
Vector last_logits(const ModelOutput& output);  // (B, T, V) or (B, 1, V) -> (V)

// The keys and values of one sequence in a model.
struct SequenceCache {
    virtual ~SequenceCache() = default;

    // Computes new tokens after the cached ones. Returns the logits after the last one. Throws
    // ValueError.
    virtual Vector append(std::span<const Id> new_ids) = 0;  // (T) -> (V)

    // Keeps the first `count` tokens and returns count, or keeps none and returns 0 if a later
    // token has overwritten one of them (in the rolling caches of chapter 17).
    virtual std::size_t crop(std::size_t count) = 0;
};

// Those of a model of chapter 09, with layers of any type. The model must outlive them.
template <class AnyModel>
struct ModelSequence final : SequenceCache {
    using Cache = ModelCache<typename AnyModel::Cache>;
    const AnyModel& model;
    const Cache empty_cache;
    Cache cache = empty_cache;

    ModelSequence(const AnyModel& any_model, std::size_t num_positions)
        : model(any_model), empty_cache(make_cache(any_model, num_positions)) {}

    Vector append(std::span<const Id> new_ids) override {
        return last_logits(model.forward(
            one_sequence(new_ids), {.cache = &cache, .logits_to_keep = LogitsToKeep::last}));
    }
    std::size_t crop(std::size_t count) override {
        if (count == cache.seq_len) return count;
        bool all_kept = count > 0;
        for (auto& layer : cache.layers) all_kept = all_kept && layer.crop(count);
        if (!all_kept) {
            cache = empty_cache;
            return 0;
        }
        return cache.seq_len = count;
    }
};

// The tokens of a sequence, and their cache, with room for P positions.
struct CachedSequence {
    std::unique_ptr<SequenceCache> cache;
    std::size_t num_positions = 0;  // P
    std::vector<Id> ids{};          // of the cached tokens
};
template <class AnyModel>
CachedSequence make_cached_sequence(const AnyModel& model, std::size_t num_positions) {  // P
    return {std::make_unique<ModelSequence<AnyModel>>(model, num_positions), num_positions};
}

// The logits of the token after a sequence of at least one token. Keys and values of the
// longest common prefix of the sequence and the cached one are kept; only the tokens after it
// are computed. An earlier message that is rendered differently, or dropped, changes the tokens
// from there on. Throws Interrupted after Ctrl-C, with the tokens computed so far in the cache,
// and ValueError for a token that is not in the vocabulary.
Vector next_token_logits(const std::vector<Id>& ids,  // (T) -> (V)
                         CachedSequence& cached);

}  // namespace llm
