// Chapter 11, file 2 of 6 — How does a model generate text?
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/11_generation/sampling.hpp"

namespace llm {

// One sequence as a batch, PyTorch's unsqueeze(0).
IdMatrix one_sequence(std::span<const Id> ids);  // T -> (1, T)

// The logits of the last position of the first sequence: they predict the next token.
Vector last_logits(const ModelOutput& output);  // (B, T, V) or (B, 1, V) -> (V)

// The parameters of generate(), named as in Hugging Face's GenerationConfig.
struct GenerationConfig {
    SamplingConfig sampling;
    std::size_t max_new_tokens = 256;
    std::vector<Id> eos_token_ids;  // each ends generation and is not returned
    bool use_cache = true;          // false: every step recomputes the whole sequence
    bool context_shift = false;     // true: go on when the context is full
};

// The tokens that stay when the context is full: the first one, and the last half of the
// others. Throws ShapeError for fewer than 4 tokens. Source: llama.cpp, "context shift".
std::vector<Id> shift_context(const std::vector<Id>& context);

// Generates tokens after a prompt, one at a time, and passes each to on_token before it
// computes the next one. Returns the new tokens. Stops after max_new_tokens, when the sequence
// has max_position_embeddings tokens (unless context_shift is true), or when one of
// eos_token_ids is sampled. Throws ShapeError if the prompt is empty or too long, or if an id
// is not in the vocabulary. Any model of chapter 09's DecoderModel generates with it.
template <class AnyModel>
std::vector<Id> generate(const AnyModel& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {}) {
    require(!prompt_ids.empty(), "generate: the prompt must have at least one token");
    check_input(model.config, one_sequence(prompt_ids));
    const std::size_t num_positions = model.config.max_position_embeddings;
    const std::size_t num_free = num_positions - prompt_ids.size();
    const std::size_t max_new_tokens = config.context_shift
                                           ? config.max_new_tokens
                                           : std::min(config.max_new_tokens, num_free);
    const auto empty_cache =
        make_cache(model, prompt_ids.size() + std::min(max_new_tokens, num_free));
    const std::vector<Id>& eos = config.eos_token_ids;
    auto cache = empty_cache;
    std::vector<Id> ids = prompt_ids, context = prompt_ids;  // all tokens; those to attend to

    while (ids.size() - prompt_ids.size() < max_new_tokens) {
        // Shift a full context. Its tokens get new positions, so the cache is computed again.
        if (context.size() == num_positions) {
            context = shift_context(context);
            cache = empty_cache;
        }

        // Run the forward pass on the tokens that are not in the KV cache yet: first on the
        // prompt (prefill), then on one token at a time (decode).
        if (!config.use_cache) cache = empty_cache;
        const IdMatrix new_ids =
            one_sequence(std::span(context).subspan(cache.seq_len));  // (1, T)
        const ModelOutput output =
            model.forward(new_ids, {.cache = &cache, .logits_to_keep = LogitsToKeep::last});

        // Sample the next token, and append it unless it ends the sequence.
        const Id id = sample_next_token(last_logits(output), ids, config.sampling, generator);
        if (std::find(eos.begin(), eos.end(), id) != eos.end()) break;
        ids.push_back(id);
        context.push_back(id);
        if (on_token) on_token(id);
    }
    return {ids.begin() + static_cast<std::ptrdiff_t>(prompt_ids.size()), ids.end()};
}

extern template std::vector<Id> generate(const Model& model, const std::vector<Id>& prompt_ids,
                                         const GenerationConfig& config, Generator& generator,
                                         const std::function<void(Id)>& on_token);

}  // namespace llm
