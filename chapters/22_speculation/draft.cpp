#include "chapters/22_speculation/draft.hpp"

namespace llm {

std::vector<Id> lookup_ngram(const std::vector<Id>& ids, std::size_t max_ngram,
                             std::size_t max_tokens) {
    if (ids.empty()) return {};

    // Try the longest n-gram first; at least one token must stand before it.
    for (std::size_t n = std::min(max_ngram, ids.size() - 1); n > 0; --n) {
        const std::span<const Id> suffix = std::span(ids).last(n);

        // Search from the end, without the suffix itself.
        for (std::size_t begin = ids.size() - n; begin-- > 0;) {
            const std::span<const Id> ngram = std::span(ids).subspan(begin, n);
            if (!std::equal(ngram.begin(), ngram.end(), suffix.begin())) continue;
            const std::size_t next = begin + n, count = std::min(max_tokens, ids.size() - next);
            const auto first = ids.begin() + std::ptrdiff_t(next);
            return {first, first + std::ptrdiff_t(count)};
        }
    }
    return {};
}

NgramProposer::NgramProposer(std::size_t vocab_size, std::size_t max_ngram_)
    : num_tokens(vocab_size), max_ngram(max_ngram_) {
    require(max_ngram > 0, "n-gram lookup: max_ngram must be at least 1");
}

Proposal NgramProposer::propose(const std::vector<Id>& context, std::size_t max_tokens,
                                const SamplingConfig&, Generator&) {
    Proposal proposal{lookup_ngram(context, max_ngram, max_tokens), {}};
    for (const Id id : proposal.ids) proposal.probabilities.push_back(one_hot(id, num_tokens));
    return proposal;
}

FastModel first_layers(const FastModel& model, std::size_t num_layers) {
    require(num_layers > 0 && num_layers <= model.layers.size(),
            "first_layers: {} layers of a model that has {}", num_layers, model.layers.size());
    FastModel draft = model;
    draft.layers.resize(num_layers);
    draft.config.num_hidden_layers = num_layers;
    return draft;
}

DraftModel::DraftModel(const FastModel& draft, std::size_t num_positions)
    : model(draft), cached(make_cached_sequence(draft, num_positions)) {}

Proposal DraftModel::propose(const std::vector<Id>& context, std::size_t max_tokens,
                             const SamplingConfig& config, Generator& generator) {
    Proposal proposal;
    std::vector<Id> ids = context;
    while (proposal.size() < max_tokens && ids.size() <= cached.num_positions) {
        const Vector logits = next_token_logits(ids, cached);       // (V)
        const Vector q = token_probabilities(logits, ids, config);  // (V)
        const Id id = sample_from(q, generator);
        proposal.ids.push_back(id);
        proposal.probabilities.push_back(q);
        ids.push_back(id);
    }
    return proposal;
}

}  // namespace llm
