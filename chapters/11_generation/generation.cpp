#include "chapters/11_generation/generation.hpp"

namespace llm {

std::vector<Id> shift_context(const std::vector<Id>& context) {
    require(context.size() >= 4, "generate: a context of {} tokens is too short to be shifted",
            context.size());
    std::vector<Id> kept = {context.front()};
    kept.insert(kept.end(), context.end() - std::ptrdiff_t(context.size() / 2), context.end());
    return kept;
}

std::size_t num_cached_positions(const Config& model, const std::vector<Id>& prompt_ids,
                                 const GenerationConfig& config) {
    require(!prompt_ids.empty(), "generate: the prompt must have at least one token");
    check_input(model, one_sequence(prompt_ids));
    const std::size_t num_free = model.max_position_embeddings - prompt_ids.size();
    return prompt_ids.size() + std::min(config.max_new_tokens, num_free);
}

namespace {

void clear(CachedSequence& cached) {
    cached.cache->crop(0);
    cached.ids.clear();
}

bool has_room(const GeneratedTokens& result, const std::vector<Id>& context,
              const CachedSequence& cached, const GenerationConfig& config) {
    return result.ids.size() < config.max_new_tokens &&
           (context.size() < cached.num_positions || config.context_shift);
}

// None after Ctrl-C.
std::optional<std::vector<Id>> tokens_or_interrupted(const NextTokens& next_tokens,
                                                     const std::vector<Id>& ids,
                                                     const std::vector<Id>& context,
                                                     std::size_t max_tokens) try {
    return next_tokens(ids, context, max_tokens);
} catch (const Interrupted&) {
    return std::nullopt;
}

}  // namespace

GeneratedTokens generate(CachedSequence& cached, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, const NextTokens& next_tokens,
                         const std::function<void(Id)>& on_token) {
    const std::vector<Id>& eos = config.eos_token_ids;
    GeneratedTokens result;
    std::vector<Id> ids = prompt_ids, context = prompt_ids;  // all tokens; those to attend to

    while (has_room(result, context, cached, config)) {
        // Shift a full context. Its tokens get new positions, so the cache is computed again.
        if (context.size() == cached.num_positions) {
            context = shift_context(context);
            clear(cached);
        }

        // Compute the next token, or several, as many as there is room for.
        if (!config.use_cache) clear(cached);
        const std::size_t max_tokens = std::min(config.max_new_tokens - result.ids.size(),
                                                cached.num_positions - context.size());
        const auto next = tokens_or_interrupted(next_tokens, ids, context, max_tokens);
        if (!next) return {std::move(result.ids), StopReason::interrupted};

        // Append each of them, unless it ends the sequence.
        for (const Id id : *next) {
            if (InterruptHandler::interrupted())
                return {std::move(result.ids), StopReason::interrupted};
            if (std::find(eos.begin(), eos.end(), id) != eos.end()) return result;
            for (std::vector<Id>* list : {&ids, &context, &result.ids}) list->push_back(id);
            if (on_token) on_token(id);
        }
    }
    result.reason = result.ids.size() == config.max_new_tokens ? StopReason::max_new_tokens
                                                               : StopReason::last_position;
    return result;
}

GeneratedTokens generate(CachedSequence& cached, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token) {
    // Run the forward pass on the tokens that are not in the KV cache yet, first on the prompt
    // (prefill), then on one token at a time (decode), and sample one token.
    const NextTokens sample_one = [&](const std::vector<Id>& ids,
                                      const std::vector<Id>& context, std::size_t) {
        Vector logits = next_token_logits(context, cached);  // (V)
        if (config.logits_processor)
            logits = config.logits_processor(logits, std::span(ids).subspan(prompt_ids.size()));
        return std::vector{sample_next_token(logits, ids, config.sampling, generator)};
    };
    return generate(cached, prompt_ids, config, sample_one, on_token);
}

}  // namespace llm
