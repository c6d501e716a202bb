#include "chapters/18_experts/mixture_decoder.hpp"

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

Tensor3 mlp_forward(const MlpOrMixture& mlp, const Tensor3& input,
                    MixtureBlockActivations& saved, std::optional<double> capacity_factor) {
    if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
        return mixture_forward(*mixture, input, saved.mixture, capacity_factor);
    return mlp_forward(std::get<GatedMlp>(mlp), input, saved.mlp);
}

Tensor3 mlp_backward(const MlpOrMixture& mlp, const MixtureBlockActivations& saved,
                     const Tensor3& output_gradient, MlpOrMixture& gradient) {
    if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
        return mixture_backward(*mixture, saved.mixture, output_gradient,
                                std::get<MixtureOfExperts>(gradient),
                                saved.router_logits_gradient);
    return mlp_backward(std::get<GatedMlp>(mlp), saved.mlp, output_gradient,
                        std::get<GatedMlp>(gradient));
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
                      const LongContextInputs& inputs, MixtureBlockActivations& saved,
                      std::optional<double> capacity_factor) {
    saved.input = hidden_states;
    saved.after_attention =
        hidden_states + attention_forward(block.self_attn, block.attention_norm(hidden_states),
                                          inputs, saved.self_attn);
    return saved.after_attention + mlp_forward(block.mlp, block.ffn_norm(saved.after_attention),
                                               saved, capacity_factor);
}

Tensor3 block_backward(const MixtureBlock& block, const LongContextInputs& inputs,
                       const MixtureBlockActivations& saved, const Tensor3& output_gradient,
                       MixtureBlock& gradient) {
    const Tensor3 mlp_gradient = mlp_backward(block.mlp, saved, output_gradient, gradient.mlp);
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

void add_parameters(ParameterList& list, const std::string& name, MixtureBlock& block) {
    add_parameters(list, name + ".input_layernorm", block.attention_norm);
    add_parameters(list, name + ".self_attn", block.self_attn);
    add_parameters(list, name + ".post_attention_layernorm", block.ffn_norm);
    std::visit([&](auto& mlp) { add_parameters(list, name + ".mlp", mlp); }, block.mlp);
}

MixtureLoss forward_backward(const MixtureDecoder& decoder, const IdMatrix& input_ids,
                             const IdMatrix& targets, const BalanceArguments& balance,
                             MixtureDecoder& gradient) {
    DecoderActivations<MixtureBlockActivations> saved;
    const Tensor3 logits =  // (B, T, V)
        decoder_forward(decoder, input_ids, saved, balance.capacity_factor);
    MixtureLoss result;
    result.cross_entropy = cross_entropy(logits, targets);

    // The router of each layer adds its own losses.
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        if (std::holds_alternative<MixtureOfExperts>(decoder.layers[n].mlp))
            saved.layers[n].router_logits_gradient =
                add_router_losses(saved.layers[n].mixture, balance.coefficients, result);
    decoder_backward(decoder, input_ids, saved, cross_entropy_backward(logits, targets),
                     gradient);
    return result;
}

MixtureOutput evaluate(const MixtureDecoder& decoder, const IdMatrix& input_ids) {
    DecoderActivations<MixtureBlockActivations> saved;
    MixtureOutput output{decoder_forward(decoder, input_ids, saved), {}};
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        if (std::holds_alternative<MixtureOfExperts>(decoder.layers[n].mlp))
            output.routed.push_back(std::move(saved.layers[n].mixture.routed));
    return output;
}

}  // namespace llm
