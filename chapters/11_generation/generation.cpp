#include "chapters/11_generation/generation.hpp"

namespace llm {

IdMatrix one_sequence(std::span<const Id> ids) {
    IdMatrix batch(std::array{std::size_t{1}, ids.size()});
    std::copy(ids.begin(), ids.end(), batch.begin());
    return batch;
}

Vector last_logits(const ModelOutput& output) {
    const auto [batch_size, seq_len, vocab_size] = dims(output.logits);
    require(batch_size > 0 && seq_len > 0, "generate: there are no logits in {}",
            output.logits.shape());
    return xt::view(output.logits, 0, seq_len - 1);
}

std::vector<Id> shift_context(const std::vector<Id>& context) {
    require(context.size() >= 4, "generate: a context of {} tokens is too short to be shifted",
            context.size());
    std::vector<Id> kept = {context.front()};
    kept.insert(kept.end(), context.end() - std::ptrdiff_t(context.size() / 2), context.end());
    return kept;
}

std::vector<Id> generate(const Model& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token) {
    require(!prompt_ids.empty(), "generate: the prompt must have at least one token");
    check_input(model.config, one_sequence(prompt_ids));
    const std::size_t num_positions = model.config.max_position_embeddings;
    const std::size_t num_free = num_positions - prompt_ids.size();
    const std::size_t max_new_tokens = config.context_shift
                                           ? config.max_new_tokens
                                           : std::min(config.max_new_tokens, num_free);
    const KVCache empty_cache =
        make_cache(model, prompt_ids.size() + std::min(max_new_tokens, num_free));
    const std::vector<Id>& eos = config.eos_token_ids;
    KVCache cache = empty_cache;
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

}  // namespace llm
