#include "chapters/18_experts/mixture_model.hpp"

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/17_long_context/rolling_generation.hpp"

namespace llm {

std::vector<RotaryTable> rotary_tables(const MixtureConfig& config, std::size_t num_positions) {
    const std::size_t head_dim = config.config.head_dim;
    if (config.yarn)
        return {make_yarn_rotary_table(head_dim, config.config.rope_theta, *config.yarn,
                                       num_positions)};
    return {make_rotary_table(rope_frequencies(config.config), num_positions)};
}

Tensor3 MixtureModel::embed(const IdMatrix& input_ids) const {
    check_input(config.config, input_ids);
    return embedding(embed_tokens, input_ids);
}

Tensor3 MixtureModel::logits(const Tensor3& hidden_states) const {
    return llm::lm_head(lm_head ? *lm_head : embed_tokens, norm(hidden_states));
}

Tensor3 MixtureModel::operator()(const IdMatrix& input_ids) const {
    return forward(input_ids, nullptr).logits;
}

ModelOutput MixtureModel::forward(const IdMatrix& input_ids, LongContextCache* cache,
                                  LogitsToKeep logits_to_keep) const {
    return forward_with_caches(*this, input_ids, cache, logits_to_keep);
}

LongContextCache make_cache(const MixtureModel& model, std::size_t num_positions) {
    LongContextCache cache{rotary_tables(model.config, num_positions), {}};
    for (const AttentionPattern& pattern : model.config.patterns)
        cache.layers.push_back(make_rolling_cache(pattern));
    return cache;
}

std::vector<Id> generate(const MixtureModel& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token) {
    return generate_with_caches(model, prompt_ids, config, generator, on_token);
}

std::vector<RoutedTokens> routed_tokens(const MixtureModel& model, const IdMatrix& input_ids) {
    const LongContextInputs inputs = long_context_inputs(
        rotary_tables(model.config, input_ids.shape(1)), input_ids.shape(1));
    std::vector<ActivationsOf<MixtureBlock>> saved;
    layers_forward(model.layers, model.embed(input_ids), inputs, saved);
    std::vector<RoutedTokens> routed;
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        if (std::holds_alternative<MixtureOfExperts>(model.layers[n].mlp))
            routed.push_back(std::move(saved[n].mlp.mixture.routed));
    return routed;
}

MixtureModel make_mixtral(const MixtureDecoder& decoder, const Config& config) {
    MixtureModel model{{}, decoder.embed_tokens, decoder.layers, decoder.norm, std::nullopt};
    for (MixtureBlock& layer : model.layers) {
        auto* mixture = std::get_if<MixtureOfExperts>(&layer.mlp);
        const auto* routing =
            mixture ? std::get_if<SoftmaxRouting>(&mixture->routing) : nullptr;
        require(routing && routing->norm_topk_prob && routing->routed_scaling_factor == 1 &&
                    !mixture->shared,
                "make_mixtral: every layer must have a mixture with softmax routing and no "
                "shared experts");
        const auto& expert = std::get<GatedMlp>(mixture->experts.front());
        model.config.sizes = {mixture->experts.size(), mixture->num_experts_per_tok,
                              expert.gate_proj.weight.shape(0), 0};
        model.config.is_mixture.push_back(true);
        model.config.patterns.push_back(layer.self_attn.pattern);
    }
    model.config.config = validate_model(config);
    model.config.config.tie_word_embeddings = true;
    model.config.config.intermediate_size = model.config.sizes.moe_intermediate_size;
    return model;
}

}  // namespace llm
