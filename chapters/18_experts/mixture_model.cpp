#include "chapters/18_experts/mixture_model.hpp"

#include <numbers>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/17_long_context/rolling_generation.hpp"

namespace llm {

// Llama 3's scaling, also with low_freq_factor = high_freq_factor, as in Llama 4 Scout: there
// is nothing to interpolate between, and the formula would divide by 0.
Vector mixture_rope_frequencies(const Config& config) {
    const auto* scaling =
        config.rope_scaling ? std::get_if<Llama3Scaling>(&*config.rope_scaling) : nullptr;
    if (!scaling || scaling->low_freq_factor < scaling->high_freq_factor)
        return rope_frequencies(config);
    Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);  // (D/2)
    for (Real& frequency : frequencies) {
        const Real wavelength = 2 * std::numbers::pi_v<Real> / frequency;
        if (wavelength > scaling->original_max_position_embeddings / scaling->low_freq_factor)
            frequency /= scaling->factor;
    }
    return frequencies;
}

std::vector<RotaryTable> rotary_tables(const MixtureConfig& config, std::size_t num_positions) {
    const std::size_t head_dim = config.config.head_dim;
    if (config.yarn)
        return {make_yarn_rotary_table(head_dim, config.config.rope_theta, *config.yarn,
                                       num_positions)};
    return {make_rotary_table(mixture_rope_frequencies(config.config), num_positions)};
}

Tensor3 MixtureModel::embed(const IdMatrix& input_ids) const {
    check_input(config.config, input_ids);
    return embedding(embed_tokens, input_ids);
}

Tensor3 MixtureModel::logits(const Tensor3& hidden_states) const {
    return Linear{lm_head ? *lm_head : embed_tokens, std::nullopt}(norm(hidden_states));
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
    std::vector<RoutedTokens> routed;
    Tensor3 hidden_states = model.embed(input_ids);  // (B, T, C)
    for (const MixtureBlock& layer : model.layers) {
        MixtureBlockActivations saved;
        hidden_states = block_forward(layer, hidden_states, inputs, saved);
        if (std::holds_alternative<MixtureOfExperts>(layer.mlp))
            routed.push_back(saved.mixture.routed);
    }
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
        mixture->capacity_factor = std::nullopt;
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
