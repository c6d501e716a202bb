#include "chapters/18_experts/moe_decoder.hpp"

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {
namespace {

// Adds a layer to the router losses and loads. Returns the gradient of its router's logits.
Matrix add_router_losses(const MoeActivations& saved,
                         const RouterLossCoefficients& coefficients, MoeLoss& result) {
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

Tensor3 MlpOrMoe::operator()(const Tensor3& hidden_states) const {
    return std::visit([&](const auto& typed) { return typed(hidden_states); }, *this);
}

ForwardPass<MlpOrMoeActivations> mlp_forward(const MlpOrMoe& mlp, const Tensor3& input) {
    if (const auto* moe = std::get_if<MixtureOfExperts>(&mlp)) {
        auto [output, activations] = moe_forward(*moe, input, moe->capacity_factor);
        return {std::move(output), std::move(activations)};
    }
    auto [output, activations] = std::holds_alternative<Mlp>(mlp)
                                     ? mlp_forward(std::get<Mlp>(mlp), input)
                                     : mlp_forward(std::get<GatedMlp>(mlp), input);
    return {std::move(output), std::move(activations)};
}

Tensor3 mlp_backward(const MlpOrMoe& mlp, const MlpOrMoeActivations& saved,
                     const Tensor3& output_gradient, MlpOrMoe& gradient) {
    if (const auto* moe = std::get_if<MixtureOfExperts>(&mlp))
        return moe_backward(*moe, std::get<MoeActivations>(saved), output_gradient,
                            std::get<MixtureOfExperts>(gradient));
    const MlpActivations& of_mlp = std::get<MlpActivations>(saved);
    if (const auto* plain = std::get_if<Mlp>(&mlp))
        return mlp_backward(*plain, of_mlp, output_gradient, std::get<Mlp>(gradient));
    return mlp_backward(std::get<GatedMlp>(mlp), of_mlp, output_gradient,
                        std::get<GatedMlp>(gradient));
}

void add_parameters(ParameterList& list, const std::string& name, MixtureOfExperts& moe) {
    add_parameters(list, name + ".gate", moe.router);
    for (std::size_t e = 0; e < moe.experts.size(); ++e)
        std::visit(
            [&](auto& expert) {
                const std::string prefix = name + ".experts." + std::to_string(e);
                add_parameters(list, prefix + ".gate_proj", expert.gate_proj);
                add_parameters(list, prefix + ".up_proj", expert.up_proj);
                add_parameters(list, prefix + ".down_proj", expert.down_proj);
            },
            moe.experts[e]);
    if (moe.shared) add_parameters(list, name + ".shared_experts", *moe.shared);
    if (moe.shared_gate) add_parameters(list, name + ".shared_expert_gate", *moe.shared_gate);
}

void add_parameters(ParameterList& list, const std::string& name, MlpOrMoe& mlp) {
    std::visit([&](auto& typed) { add_parameters(list, name, typed); }, mlp);
}

void set_capacity_factor(MoeDecoder& decoder, std::optional<double> capacity_factor) {
    for (MoeBlock& layer : decoder.layers)
        if (auto* moe = std::get_if<MixtureOfExperts>(&layer.mlp))
            moe->capacity_factor = capacity_factor;
}

MoeLoss forward_backward(const MoeDecoder& decoder, const IdMatrix& input_ids,
                         const IdMatrix& targets, const BalanceArguments& balance,
                         MoeDecoder& gradient) {
    auto [logits, saved] = model_forward(decoder, input_ids);
    MoeLoss result;
    result.cross_entropy = cross_entropy(logits, targets);

    // The router of each layer adds its own losses.
    for (auto& layer : saved.layers)
        if (auto* moe = std::get_if<MoeActivations>(&layer.mlp))
            moe->router_logits_gradient = add_router_losses(*moe, balance.coefficients, result);
    model_backward(decoder, saved, cross_entropy_backward(logits, targets), gradient);
    return result;
}

}  // namespace llm
