// Chapter 18, file 5 of 7: a block and a decoder with a mixture of experts, forward and
// backward.
#pragma once

#include "chapters/17_long_context/pattern_attention_backward.hpp"
#include "chapters/18_experts/balance.hpp"

namespace llm {

// The MLP of a block: dense, or a mixture of experts. (Many models have both: the first layers
// are dense, or every second one.) Mlp has no gate.
struct MlpOrMoe : std::variant<GatedMlp, MixtureOfExperts, Mlp> {
    using variant::variant;
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, C)
};

using MlpOrMoeActivations = std::variant<MlpActivations, MoeActivations>;
ForwardPass<MlpOrMoeActivations> mlp_forward(const MlpOrMoe& mlp,
                                             const Tensor3& input);  // (B, T, C)
// Returns the gradient with respect to the input, (B, T, C).
Tensor3 mlp_backward(const MlpOrMoe& mlp, const MlpOrMoeActivations& saved,
                     const Tensor3& output_gradient,  // (B, T, C)
                     MlpOrMoe& gradient);

// The pre-norm block of chapter 08 with the attention of chapter 17 and such an MLP.
using MoeBlock = PreNormBlockWith<RMSNorm, MlpOrMoe, PatternAttention>;

// The model of chapter 09 with such blocks, for experiments.
using MoeDecoder = DecoderModel<MoeBlock>;

// Appends the parameters of a mixture of experts under the names of Qwen3-MoE and DeepSeek:
// gate, experts.0.gate_proj, shared_experts.gate_proj. The correction bias of a router is not
// among them: no gradient changes it.
void add_parameters(ParameterList& list, const std::string& name, MixtureOfExperts& moe);
void add_parameters(ParameterList& list, const std::string& name, MlpOrMoe& mlp);

// What the losses of the routers are multiplied by before they are added to the cross-entropy.
// Hugging Face: router_aux_loss_coef, router_z_loss_coef.
struct RouterLossCoefficients {
    Real aux_loss = 0, z_loss = 0;
};
// How a training run keeps the load balanced.
struct BalanceArguments {
    RouterLossCoefficients coefficients;
    Real bias_update_rate = 0;  // of SigmoidRouting; 0: the bias stays
};

struct MoeLoss {
    double cross_entropy = 0;
    double aux_loss = 0, z_loss = 0;  // sums over the layers, without coefficients
    std::vector<Vector> load;         // (E) of each layer with a mixture of experts
    std::size_t num_choices = 0, num_dropped = 0;  // pairs of token and expert, of all layers
};
// The loss of a batch; the gradients are accumulated. Throws ValueError if an id lies outside
// the vocabulary.
MoeLoss forward_backward(const MoeDecoder& decoder,
                         const IdMatrix& input_ids,  // (B, T)
                         const IdMatrix& targets,    // (B, T)
                         const BalanceArguments& balance, MoeDecoder& gradient);

// Sets the capacity factor of each mixture of experts; none: no token is dropped.
void set_capacity_factor(MoeDecoder& decoder, std::optional<double> capacity_factor);

// The activations of the MLP of a layer; a layer of several block types has a variant of them.
template <class Activations>
MlpOrMoeActivations& mlp_activations(Activations& saved) {
    return saved.mlp;
}
template <class... Activations>
MlpOrMoeActivations& mlp_activations(std::variant<Activations...>& saved) {
    return std::visit([](auto& held) -> MlpOrMoeActivations& { return held.mlp; }, saved);
}

// The experts of each token, (N, K), in each layer with a mixture of experts.
template <class Layer, class AnyConfig, class FinalNorm>
std::vector<RoutedTokens> routed_tokens(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                                        const IdMatrix& input_ids) {  // (B, T)
    auto [logits, activations] = model_forward(model, input_ids);
    std::vector<RoutedTokens> routed;
    for (auto& layer : activations.layers) {
        if (auto* moe = std::get_if<MoeActivations>(&mlp_activations(layer)))
            routed.push_back(std::move(moe->routed));
    }
    return routed;
}

}  // namespace llm
