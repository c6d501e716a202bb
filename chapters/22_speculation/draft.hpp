// Chapter 22, file 2 of 5: drafts: n-gram lookup and a smaller model.
#pragma once

#include "chapters/15_fast/inference.hpp"
#include "chapters/22_speculation/speculative_sampling.hpp"

namespace llm {

// Proposes the next tokens of a sequence, at much less cost than the target model.
struct Proposer {
    virtual ~Proposer() = default;

    virtual std::size_t vocab_size() const = 0;  // V, which must be the target's

    // Proposes at most max_tokens tokens, or none. `context` are the tokens that the target
    // attends to. Any distributions are correct, also without the sampling options; proposals
    // are accepted more often if they resemble the target's.
    virtual Proposal propose(const std::vector<Id>& context, std::size_t max_tokens,
                             const SamplingConfig& config, Generator& generator) = 0;
};

// The tokens that followed the last n tokens where they occurred before: the longest suffix of
// at most max_ngram tokens that has occurred, at its last occurrence. At most max_tokens, fewer
// if the sequence ends before, none if not even the last token has occurred.
std::vector<Id> lookup_ngram(const std::vector<Id>& ids, std::size_t max_ngram,
                             std::size_t max_tokens);

// Prompt lookup decoding: costs next to nothing, and is good where the text repeats itself or
// the prompt (a summary, code that is edited, names). Sources: "Prompt Lookup Decoding"
// (Saxena, 2023); vLLM's "ngram" speculator, prompt_lookup_max.
struct NgramProposer final : Proposer {
    std::size_t num_tokens, max_ngram;

    // Throws ValueError if max_ngram is 0.
    explicit NgramProposer(std::size_t vocab_size, std::size_t max_ngram = 3);
    std::size_t vocab_size() const override { return num_tokens; }
    Proposal propose(const std::vector<Id>& context, std::size_t max_tokens,
                     const SamplingConfig& config, Generator& generator) override;
};

// A draft model: a smaller model with the same tokenizer, which generates the proposal token by
// token, with a cache of its own. After a rejection, chapter 11's next_token_logits crops that
// cache to the tokens that were accepted. The model must outlive it.
struct DraftModel final : Proposer {
    const FastModel& model;
    CachedSequence cached;

    // Throws ValueError if num_positions is 0 or exceeds max_position_embeddings of the draft.
    // In a longer context it proposes nothing.
    DraftModel(const FastModel& draft, std::size_t num_positions);  // P
    std::size_t vocab_size() const override { return model.config.vocab_size; }
    Proposal propose(const std::vector<Id>& context, std::size_t max_tokens,
                     const SamplingConfig& config, Generator& generator) override;
};

// A draft model without training: the first layers of a model, then its norm and its head. The
// two share the memory of their weights. Throws ValueError unless there are 1 to L layers.
// Sources: "LayerSkip" (Elhoushi et al., 2024), which trains a model for this; "Draft & Verify"
// (Zhang et al., 2024), which leaves out layers in the middle.
FastModel first_layers(const FastModel& model, std::size_t num_layers);

}  // namespace llm
