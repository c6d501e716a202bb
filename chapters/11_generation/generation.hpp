// Chapter 11, file 3 of 7 — How does a model generate text?
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "chapters/11_generation/cached_sequence.hpp"
#include "chapters/11_generation/sampling.hpp"
#include "common/system/interrupt.hpp"

namespace llm {

// The parameters of generate(), named as in Hugging Face's GenerationConfig.
struct GenerationConfig {
    SamplingConfig sampling = {};
    std::size_t max_new_tokens = 256;
    std::vector<Id> eos_token_ids = {};  // each ends generation and is not returned
    bool use_cache = true;               // false: every step recomputes the whole sequence
    bool context_shift = false;          // true: go on when the context is full
    // Changes the logits of each step before the sampling parameters apply; none: unchanged.
    std::function<Vector(const Vector& logits,          // (V) -> (V)
                         std::span<const Id> new_ids)>  // the new tokens so far
        logits_processor = {};
};

// The tokens that stay when the context is full: the first one, and the last half of the
// others. Throws ValueError for fewer than 4 tokens. Source: llama.cpp, "context shift".
std::vector<Id> shift_context(const std::vector<Id>& context);

// Generates tokens after a prompt, one at a time, and passes each to on_token before it
// computes the next one. Stops when one of eos_token_ids is sampled, after max_new_tokens, when
// the positions of the cache are full (unless context_shift is true), or after Ctrl-C. Throws
// ValueError if the prompt is empty or has a token that is not in the vocabulary.
enum class StopReason { eos_token, max_new_tokens, last_position, interrupted };
struct GeneratedTokens {
    std::vector<Id> ids;  // the new tokens, without the EOS token
    StopReason reason = StopReason::eos_token;
};
GeneratedTokens generate(CachedSequence& cached, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {});

// The same loop with another way to compute the next tokens: at least one and at most
// max_tokens of them, or Interrupted after Ctrl-C. `ids` are all tokens so far, `context` those
// to attend to: after a context shift, some of them.
using NextTokens = std::function<std::vector<Id>(
    const std::vector<Id>& ids, const std::vector<Id>& context, std::size_t max_tokens)>;
GeneratedTokens generate(CachedSequence& cached, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, const NextTokens& next_tokens,
                         const std::function<void(Id)>& on_token = {});

// The positions that a cache needs: those of the prompt and the new tokens, or all if the
// context may be shifted. Throws ValueError if the prompt is empty, too long, or has a token
// that is not in the vocabulary.
std::size_t num_cached_positions(const Config& model, const std::vector<Id>& prompt_ids,
                                 const GenerationConfig& config);

// The same with any model of chapter 09's DecoderModel, whose context has
// max_position_embeddings tokens, and an empty cache. Throws ValueError as above, also if the
// prompt is too long, and Interrupted after Ctrl-C.
template <class AnyModel>
GeneratedTokens generate(const AnyModel& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {}) {
    CachedSequence cached =
        make_cached_sequence(model, num_cached_positions(model.config, prompt_ids, config));
    GeneratedTokens result = generate(cached, prompt_ids, config, generator, on_token);
    if (result.reason == StopReason::interrupted) throw Interrupted();
    return result;
}

}  // namespace llm
