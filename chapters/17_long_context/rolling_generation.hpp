// Chapter 17: the forward pass and the loop of generation of models with rolling caches, of
// this chapter and of later ones.
#pragma once

#include <algorithm>

#include "chapters/17_long_context/long_context_model.hpp"

namespace llm {

// The forward pass of any model that has the members config.config, embed, layers and logits,
// and functions rotary_tables(config, P) and make_cache(model, P). Throws ShapeError if the
// cached and the new tokens exceed max_position_embeddings.
template <class AnyModel>
ModelOutput forward_with_caches(const AnyModel& model, const IdMatrix& input_ids,  // (B, T)
                                LongContextCache* cache, LogitsToKeep logits_to_keep) {
    const Tensor3 embeddings = model.embed(input_ids);  // (B, T, C)
    const std::size_t seq_len = input_ids.shape(1);
    const std::size_t past_len = cache ? cache->seq_len : 0, end = past_len + seq_len;
    require(end <= model.config.config.max_position_embeddings,
            "long_context_model: {} tokens exceed max_position_embeddings of {}", end,
            model.config.config.max_position_embeddings);
    const LongContextInputs inputs = long_context_inputs(
        cache ? cache->rotary_tables : rotary_tables(model.config, end), seq_len, past_len);
    const Tensor3 last_hidden_state =
        run_layers(model.layers, embeddings, inputs, cache ? &cache->layers : nullptr)
            .last_hidden_state;
    if (cache) cache->seq_len = end;
    if (logits_to_keep == LogitsToKeep::all) return {model.logits(last_hidden_state), {}, {}};
    return {
        model.logits(xt::view(last_hidden_state, xt::all(), xt::range(seq_len - 1, seq_len))),
        {},
        {}};
}

// generate() of chapter 11 for such a model.
template <class AnyModel>
std::vector<Id> generate_with_caches(const AnyModel& model, const std::vector<Id>& prompt_ids,
                                     const GenerationConfig& config, Generator& generator,
                                     const std::function<void(Id)>& on_token) {
    require(!prompt_ids.empty(), "generate: the prompt must have at least one token");
    require(!config.context_shift, "generate: context_shift is not supported for {}",
            to_text(model.config.model_type));
    check_input(model.config.config, one_sequence(prompt_ids));
    const std::size_t num_free =
        model.config.config.max_position_embeddings - prompt_ids.size();
    const std::vector<Id>& eos = config.eos_token_ids;
    const std::size_t max_new_tokens = std::min(config.max_new_tokens, num_free);
    const LongContextCache empty_cache = make_cache(model, prompt_ids.size() + max_new_tokens);
    LongContextCache cache = empty_cache;
    std::vector<Id> ids = prompt_ids, new_ids = prompt_ids;
    while (ids.size() - prompt_ids.size() < max_new_tokens) {
        // Without a cache, every step is a prefill of all tokens.
        if (!config.use_cache) cache = empty_cache, new_ids = ids;
        const ModelOutput output =
            model.forward(one_sequence(new_ids), &cache, LogitsToKeep::last);
        const Id id = sample_next_token(last_logits(output), ids, config.sampling, generator);
        if (std::find(eos.begin(), eos.end(), id) != eos.end()) break;
        ids.push_back(id);
        new_ids = {id};
        if (on_token) on_token(id);
    }
    return {ids.begin() + static_cast<std::ptrdiff_t>(prompt_ids.size()), ids.end()};
}

}  // namespace llm
