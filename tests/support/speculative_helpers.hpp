// What the tests of speculative decoding share: tiny models and drafts that know nothing.
#pragma once

#include <map>

#include "chapters/22_speculation/speculative_decoding.hpp"
#include "tests/support/fast_helpers.hpp"

namespace llm {

using IdList = std::vector<Id>;

// A model of 7 tokens whose distributions are neither flat nor certain.
inline Model tiny_model(std::uint32_t seed, std::size_t vocab_size = 7) {
    Config config = odd_config();
    config.hidden_size = 24;
    config.intermediate_size = 20;
    config.vocab_size = vocab_size;
    config.tie_word_embeddings = false;  // a tied one repeats its last token
    config.max_position_embeddings = 40;
    Generator generator(seed);
    Model model = make_test_model(config, generator);
    model.lm_head = *model.lm_head * Real(3);
    return model;
}
inline const FastModel& tiny(std::uint32_t seed) {
    static std::map<std::uint32_t, FastModel> made;
    if (!made.contains(seed))
        made.emplace(seed, make_fast_model(tiny_model(seed), DType::float32));
    return made.at(seed);
}

// Proposes the same tokens again and again, whatever the text is.
struct Garbage : Proposer {
    std::size_t num_tokens;
    IdList ids;
    bool one_hot_probabilities = true;

    Garbage(std::size_t vocab, IdList proposed, bool one_hot_)
        : num_tokens(vocab), ids(std::move(proposed)), one_hot_probabilities(one_hot_) {}
    std::size_t vocab_size() const override { return num_tokens; }
    Proposal propose(const IdList& context, std::size_t max_tokens, const SamplingConfig&,
                     Generator& generator) override {
        const Vector uniform = xt::ones<Real>({num_tokens}) / Real(num_tokens);
        Proposal proposal;
        for (std::size_t k = 0; k < max_tokens; ++k) {
            const Id id = one_hot_probabilities ? ids[(context.size() + k) % ids.size()]
                                                : sample_from(uniform, generator);
            proposal.ids.push_back(id);
            proposal.probabilities.push_back(one_hot_probabilities ? one_hot(id, num_tokens)
                                                                   : uniform);
        }
        return proposal;
    }
};

}  // namespace llm
