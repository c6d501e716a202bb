#include "chapters/18_experts/mixture_decoder.hpp"

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

// A block that saves its activations when it is called, for run_layers of chapter 09.
struct SavingMixtureBlock {
    const MixtureBlock* block;
    MixtureBlockActivations* saved;

    AttentionLayer::Output operator()(const Tensor3& hidden_states,
                                      const LongContextInputs& inputs, RollingCache*) const {
        return {block_forward(*block, hidden_states, inputs, *saved), {}};
    }
};

Tensor3 mlp_forward(const MlpOrMixture& mlp, const Tensor3& input,
                    MixtureBlockActivations& saved) {
    if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
        return mixture_forward(*mixture, input, saved.mixture);
    return mlp_forward(std::get<GatedMlp>(mlp), input, saved.mlp);
}

Tensor3 mlp_backward(const MlpOrMixture& mlp, const MixtureBlockActivations& saved,
                     const Tensor3& output_gradient, const Matrix& router_logits_gradient,
                     MlpOrMixture& gradient) {
    if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
        return mixture_backward(*mixture, saved.mixture, output_gradient,
                                std::get<MixtureOfExperts>(gradient), router_logits_gradient);
    return mlp_backward(std::get<GatedMlp>(mlp), saved.mlp, output_gradient,
                        std::get<GatedMlp>(gradient));
}

// The forward pass of all layers: (B, T) -> (B, T, C). run_layers is the loop of chapter 09.
Tensor3 decoder_forward(const MixtureDecoder& decoder, const IdMatrix& input_ids,
                        const LongContextInputs& inputs,
                        std::vector<MixtureBlockActivations>& saved) {
    const std::size_t vocab_size = decoder.embed_tokens.shape(0);
    for (const Id id : input_ids)
        require(id >= 0 && id < static_cast<Id>(vocab_size),
                "mixture_decoder: token id {} lies outside the vocabulary of {}", id,
                vocab_size);
    saved.resize(decoder.layers.size());
    std::vector<SavingMixtureBlock> layers;
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        layers.push_back({&decoder.layers[n], &saved[n]});
    std::vector<RollingCache>* const no_caches = nullptr;
    return run_layers(layers, embedding(decoder.embed_tokens, input_ids), inputs, no_caches)
        .last_hidden_state;
}

// Adds a layer to the router losses and loads. Returns the gradient of its router's logits.
Matrix add_router_losses(const MixtureActivations& saved,
                         const RouterLossCoefficients& coefficients, MixtureLoss& result) {
    const IdMatrix& experts = saved.routed.experts;
    const RouterLoss aux = load_balancing_loss(saved.router_logits, experts);
    const RouterLoss z = router_z_loss(saved.router_logits);
    result.aux_loss += aux.loss;
    result.z_loss += z.loss;
    result.load.push_back(expert_load(experts, saved.router_logits.shape(1)));
    result.num_choices += experts.size();
    result.num_dropped += experts.size() - saved.dispatch.tokens.size();
    return coefficients.aux_loss * aux.logits_gradient +
           coefficients.z_loss * z.logits_gradient;
}

}  // namespace

AttentionLayer::Output MixtureBlock::operator()(const Tensor3& hidden_states,
                                                const LongContextInputs& inputs,
                                                RollingCache* cache) const {
    AttentionLayer::Output attention = self_attn(attention_norm(hidden_states), inputs, cache);
    const Tensor3 after_attention = hidden_states + attention.hidden_states;  // (B, T, C)
    const Tensor3 normalized = ffn_norm(after_attention);                     // (B, T, C)
    const Tensor3 mlp_output =                                                // (B, T, C)
        std::visit([&](const auto& typed) { return typed(normalized); }, mlp);
    return {after_attention + mlp_output, std::move(attention.attentions)};
}

Tensor3 block_forward(const MixtureBlock& block, const Tensor3& hidden_states,
                      const LongContextInputs& inputs, MixtureBlockActivations& saved) {
    saved.input = hidden_states;
    saved.after_attention =
        hidden_states + attention_forward(block.self_attn, block.attention_norm(hidden_states),
                                          inputs, saved.self_attn);
    return saved.after_attention +
           mlp_forward(block.mlp, block.ffn_norm(saved.after_attention), saved);
}

Tensor3 block_backward(const MixtureBlock& block, const LongContextInputs& inputs,
                       const MixtureBlockActivations& saved, const Tensor3& output_gradient,
                       const Matrix& router_logits_gradient, MixtureBlock& gradient) {
    const Tensor3 mlp_gradient =
        mlp_backward(block.mlp, saved, output_gradient, router_logits_gradient, gradient.mlp);
    const Tensor3 after_attention_gradient =
        output_gradient +
        norm_backward(block.ffn_norm, saved.after_attention, mlp_gradient, gradient.ffn_norm);
    const Tensor3 normalized_gradient = attention_backward(
        block.self_attn, inputs, saved.self_attn, after_attention_gradient, gradient.self_attn);
    return after_attention_gradient + norm_backward(block.attention_norm, saved.input,
                                                    normalized_gradient,
                                                    gradient.attention_norm);
}

void add_parameters(ParameterList& list, const std::string& name, MixtureOfExperts& mixture) {
    add_parameters(list, name + ".gate", mixture.router);
    for (std::size_t e = 0; e < mixture.experts.size(); ++e)
        std::visit(
            [&](auto& expert) {
                const std::string prefix = name + ".experts." + std::to_string(e);
                add_parameters(list, prefix + ".gate_proj", expert.gate_proj);
                add_parameters(list, prefix + ".up_proj", expert.up_proj);
                add_parameters(list, prefix + ".down_proj", expert.down_proj);
            },
            mixture.experts[e]);
    if (mixture.shared) add_parameters(list, name + ".shared_experts", *mixture.shared);
}

std::vector<Parameter> named_parameters(MixtureDecoder& decoder) {
    ParameterList list;
    add_parameters(list, "model.embed_tokens.weight", decoder.embed_tokens);
    for (std::size_t n = 0; n < decoder.layers.size(); ++n) {
        const std::string name = "model.layers." + std::to_string(n);
        MixtureBlock& layer = decoder.layers[n];
        add_parameters(list, name + ".input_layernorm", layer.attention_norm);
        add_parameters(list, name + ".self_attn", layer.self_attn.layer);
        add_parameters(list, name + ".post_attention_layernorm", layer.ffn_norm);
        std::visit([&](auto& mlp) { add_parameters(list, name + ".mlp", mlp); }, layer.mlp);
    }
    add_parameters(list, "model.norm", decoder.norm);
    return list;
}

MixtureDecoder zeros_like(const MixtureDecoder& decoder) {
    MixtureDecoder zeros = decoder;
    for (const Parameter& parameter : named_parameters(zeros))
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
    return zeros;
}

MixtureLoss forward_backward(const MixtureDecoder& decoder, const IdMatrix& input_ids,
                             const IdMatrix& targets,
                             const RouterLossCoefficients& coefficients,
                             MixtureDecoder& gradient) {
    const LongContextInputs inputs =
        long_context_inputs({decoder.rotary_table}, input_ids.shape(1));
    std::vector<MixtureBlockActivations> saved;
    const Tensor3 last_hidden_state =  // (B, T, C)
        decoder_forward(decoder, input_ids, inputs, saved);
    const Tensor3 normalized = decoder.norm(last_hidden_state);                     // (B, T, C)
    const Tensor3 logits = Linear{decoder.embed_tokens, std::nullopt}(normalized);  // (B, T, V)
    MixtureLoss result;
    result.cross_entropy = cross_entropy(logits, targets);

    // The layers, last to first. The router of each adds its own losses.
    Tensor3 hidden_gradient = norm_backward(
        decoder.norm, last_hidden_state,
        lm_head_backward(decoder.embed_tokens, normalized,
                         cross_entropy_backward(logits, targets), gradient.embed_tokens),
        gradient.norm);
    std::vector<Matrix> router_gradients(decoder.layers.size());
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        if (std::holds_alternative<MixtureOfExperts>(decoder.layers[n].mlp))
            router_gradients[n] = add_router_losses(saved[n].mixture, coefficients, result);
    for (std::size_t n = decoder.layers.size(); n-- > 0;)
        hidden_gradient = block_backward(decoder.layers[n], inputs, saved[n], hidden_gradient,
                                         router_gradients[n], gradient.layers[n]);
    embedding_backward(input_ids, hidden_gradient, gradient.embed_tokens);
    return result;
}

MixtureOutput evaluate(const MixtureDecoder& given, const IdMatrix& input_ids) {
    MixtureDecoder decoder = given;
    for (MixtureBlock& layer : decoder.layers)
        if (auto* mixture = std::get_if<MixtureOfExperts>(&layer.mlp))
            mixture->capacity_factor = std::nullopt;
    std::vector<MixtureBlockActivations> saved;
    const LongContextInputs inputs =
        long_context_inputs({decoder.rotary_table}, input_ids.shape(1));
    const Tensor3 last_hidden_state = decoder_forward(decoder, input_ids, inputs, saved);
    MixtureOutput output{
        Linear{decoder.embed_tokens, std::nullopt}(decoder.norm(last_hidden_state)), {}};
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        if (std::holds_alternative<MixtureOfExperts>(decoder.layers[n].mlp))
            output.routed.push_back(saved[n].mixture.routed);
    return output;
}

}  // namespace llm
