#include "chapters/17_long_context/long_context_model.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"

namespace llm {
AttentionLayer::Output LongContextSandwichBlock::operator()(const Tensor3& hidden_states,
                                                            const LongContextInputs& inputs,
                                                            RollingCache* cache) const {
    AttentionLayer::Output attention = self_attn(attention_norm(hidden_states), inputs, cache);
    const Tensor3 after_attention =  // (B, T, C)
        hidden_states + attention_output_norm(attention.hidden_states);
    return {after_attention + ffn_output_norm(mlp(ffn_norm(after_attention))),
            std::move(attention.attentions)};
}

const LongContextAttention& LongContextLayer::self_attn() const {
    return std::visit(
        [](const auto& typed) -> const LongContextAttention& { return typed.self_attn; },
        block);
}

AttentionLayer::Output LongContextLayer::operator()(const Tensor3& hidden_states,
                                                    const LongContextInputs& inputs,
                                                    RollingCache* cache) const {
    return std::visit([&](const auto& typed) { return typed(hidden_states, inputs, cache); },
                      block);
}

std::vector<RotaryTable> rotary_tables(const LongContextConfig& config,
                                       std::size_t num_positions) {
    const std::size_t head_dim = config.config.head_dim;
    const Vector full = interpolate_positions(  // (D/2)
        inverse_frequencies(head_dim, config.config.rope_theta), config.rope_factor);
    std::vector<RotaryTable> tables = {make_rotary_table(full, num_positions)};
    if (config.rope_local_base_freq)
        tables.push_back(make_rotary_table(
            inverse_frequencies(head_dim, *config.rope_local_base_freq), num_positions));
    return tables;
}

Tensor3 LongContextModel::embed(const IdMatrix& input_ids) const {
    check_input(config.config, input_ids);
    if (!config.is_gemma()) return embedding(embed_tokens, input_ids);
    return embedding(embed_tokens, input_ids) *
           std::sqrt(static_cast<Real>(config.config.hidden_size));
}

Tensor3 LongContextModel::logits(const Tensor3& hidden_states) const {
    const Matrix& head = lm_head ? *lm_head : embed_tokens;               // (V, C)
    const Tensor3 raw = Linear{head, std::nullopt}(norm(hidden_states));  // (B, T, V)
    return config.final_logit_softcapping ? logit_softcap(raw, *config.final_logit_softcapping)
                                          : raw;
}

Tensor3 LongContextModel::operator()(const IdMatrix& input_ids) const {
    return forward(input_ids, nullptr).logits;
}

ModelOutput LongContextModel::forward(const IdMatrix& input_ids, LongContextCache* cache,
                                      LogitsToKeep logits_to_keep) const {
    const Tensor3 embeddings = embed(input_ids);  // (B, T, C)
    const std::size_t seq_len = input_ids.shape(1);
    const std::size_t past_len = cache ? cache->seq_len : 0, end = past_len + seq_len;
    require(end <= config.config.max_position_embeddings,
            "long_context_model: {} tokens exceed max_position_embeddings of {}", end,
            config.config.max_position_embeddings);
    const LongContextInputs inputs = long_context_inputs(
        cache ? cache->rotary_tables : rotary_tables(config, end), seq_len, past_len);
    const Tensor3 last_hidden_state =
        run_layers(layers, embeddings, inputs, cache ? &cache->layers : nullptr)
            .last_hidden_state;
    if (cache) cache->seq_len = end;
    if (logits_to_keep == LogitsToKeep::all) return {logits(last_hidden_state), {}, {}};
    return {logits(xt::view(last_hidden_state, xt::all(), xt::range(seq_len - 1, seq_len))),
            {},
            {}};
}

LongContextCache make_cache(const LongContextModel& model, std::size_t num_positions) {
    LongContextCache cache{rotary_tables(model.config, num_positions), {}};
    for (const AttentionPattern& pattern : model.config.patterns)
        cache.layers.push_back(make_rolling_cache(pattern));
    return cache;
}

std::vector<Id> generate(const LongContextModel& model, const std::vector<Id>& prompt_ids,
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
