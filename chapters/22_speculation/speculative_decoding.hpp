// Chapter 22, file 3 of 5: speculative decoding: several tokens from one step of the target.
#pragma once

#include "chapters/22_speculation/draft.hpp"

namespace llm {

// A sequence of the target model, the one whose tokens are wanted, its KV cache with room for P
// positions, and the hidden states of the cached tokens, which a draft may read. The model must
// outlive it.
struct TargetSequence {
    const FastModel& model;
    CachedSequence cached;  // its cache is the FastSequence below
    FastSequence& sequence;
};
TargetSequence make_target_sequence(const FastModel& model, std::size_t num_positions,  // P
                                    DType cache_dtype = DType::float32);

// Computes the keys and values, and the hidden states, of all tokens of a context but the last
// one, as far as they are missing. In the middle of a text they are there already; at its
// beginning, this is the prefill.
void fill_cache(TargetSequence& target, const std::vector<Id>& context);

struct SpeculativeStatistics {
    std::size_t steps = 0;     // verification steps: forward passes of the target after prefill
    std::size_t proposed = 0;  // tokens of the draft
    std::size_t accepted = 0;  // those of them that were accepted
};

// One verification step, which replaces a decode step. The target computes the last token of
// the context and the K proposed tokens in one call: K + 1 tokens, but the weights are read
// once. Row k of the logits predicts the token after the first k proposals. Rejected tokens are
// cropped from the cache. Returns 1 to K + 1 tokens, none after an EOS token; the cache then
// holds the context and all of these but the last. `ids` are all tokens so far, as in
// NextTokens. Throws Interrupted after Ctrl-C, and ValueError.
std::vector<Id> verify_proposal(TargetSequence& target, const Proposal& proposal,
                                const std::vector<Id>& ids, const std::vector<Id>& context,
                                const GenerationConfig& config, Generator& generator,
                                SpeculativeStatistics& statistics);

// Generates as chapter 11's generate does, with the same distribution of tokens, but a draft
// proposes up to num_speculative_tokens tokens before each step (vLLM's name). Sampled tokens
// are other ones than those of chapter 11 with the same seed, because random numbers are used
// differently; greedy decoding gives the same tokens, unless two logits are equal up to
// rounding. Throws ValueError as chapter 11 does, also if the vocabularies differ.
struct SpeculativeTokens {
    GeneratedTokens generated;
    SpeculativeStatistics statistics;
};
SpeculativeTokens generate_speculatively(TargetSequence& target, Proposer& proposer,
                                         std::size_t num_speculative_tokens,  // K
                                         const std::vector<Id>& prompt_ids,
                                         const GenerationConfig& config, Generator& generator,
                                         const std::function<void(Id)>& on_token = {});

}  // namespace llm
