#include "chapters/18_experts/mixture_decoder.hpp"

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

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

Tensor3 MlpOrMixture::operator()(const Tensor3& hidden_states) const {
    return std::visit([&](const auto& typed) { return typed(hidden_states); }, *this);
}

Tensor3 mlp_forward(const MlpOrMixture& mlp, const Tensor3& input,
                    MlpOrMixtureActivations& saved) {
    if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
        return mixture_forward(*mixture, input, saved.mixture, saved.capacity_factor);
    return mlp_forward(std::get<GatedMlp>(mlp), input, saved.mlp);
}

Tensor3 mlp_backward(const MlpOrMixture& mlp, const MlpOrMixtureActivations& saved,
                     const Tensor3& output_gradient, MlpOrMixture& gradient) {
    if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
        return mixture_backward(*mixture, saved.mixture, output_gradient,
                                std::get<MixtureOfExperts>(gradient),
                                saved.router_logits_gradient);
    return mlp_backward(std::get<GatedMlp>(mlp), saved.mlp, output_gradient,
                        std::get<GatedMlp>(gradient));
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

void add_parameters(ParameterList& list, const std::string& name, MlpOrMixture& mlp) {
    std::visit([&](auto& typed) { add_parameters(list, name, typed); }, mlp);
}

MixtureLoss forward_backward(const MixtureDecoder& decoder, const IdMatrix& input_ids,
                             const IdMatrix& targets, const BalanceArguments& balance,
                             MixtureDecoder& gradient) {
    DecoderActivations<MixtureBlock> saved;
    saved.layers.resize(decoder.layers.size());
    for (auto& layer : saved.layers) layer.mlp.capacity_factor = balance.capacity_factor;
    const Tensor3 logits = model_forward(decoder, input_ids, saved);  // (B, T, V)
    MixtureLoss result;
    result.cross_entropy = cross_entropy(logits, targets);

    // The router of each layer adds its own losses.
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        if (std::holds_alternative<MixtureOfExperts>(decoder.layers[n].mlp))
            saved.layers[n].mlp.router_logits_gradient =
                add_router_losses(saved.layers[n].mlp.mixture, balance.coefficients, result);
    model_backward(decoder, saved, cross_entropy_backward(logits, targets), gradient);
    return result;
}

}  // namespace llm
