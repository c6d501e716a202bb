#include "chapters/17_long_context/long_context_model.hpp"

#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/17_long_context/rolling_generation.hpp"

namespace llm {

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
    const Matrix& head = lm_head ? *lm_head : embed_tokens;       // (V, C)
    const Tensor3 raw = llm::lm_head(head, norm(hidden_states));  // (B, T, V)
    return config.final_logit_softcapping ? logit_softcap(raw, *config.final_logit_softcapping)
                                          : raw;
}

Tensor3 LongContextModel::operator()(const IdMatrix& input_ids) const {
    return forward(input_ids, nullptr).logits;
}

ModelOutput LongContextModel::forward(const IdMatrix& input_ids, LongContextCache* cache,
                                      LogitsToKeep logits_to_keep) const {
    return forward_with_caches(*this, input_ids, cache, logits_to_keep);
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
    return generate_with_caches(model, prompt_ids, config, generator, on_token);
}

}  // namespace llm
