// Chapter 18: a block and a decoder with a mixture of experts, forward and backward.
#pragma once

#include "chapters/17_long_context/long_context_backward.hpp"
#include "chapters/18_experts/balance.hpp"

namespace llm {

// The MLP of a block: dense, or a mixture. (Many models have both: the first layers are dense
// in DeepSeek-V3, every second one in Llama 4 Maverick.)
using MlpOrMixture = std::variant<GatedMlp, MixtureOfExperts>;

// x + f(norm(x)), with attention as f, then with the MLP or the mixture.
struct MixtureBlock {
    LongContextAttention self_attn;
    MlpOrMixture mlp;
    RMSNorm attention_norm, ffn_norm;

    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T, C)
                                      const LongContextInputs& inputs,
                                      RollingCache* cache = nullptr) const;
};

// Its activations. Of mlp and mixture, one is empty.
struct MixtureBlockActivations {
    Tensor3 input;  // (B, T, C)
    LongContextActivations self_attn;
    Tensor3 after_attention;  // (B, T, C)
    MlpActivations mlp;
    MixtureActivations mixture;
    Matrix router_logits_gradient;  // (N, E): by balancing losses; empty: there are none
};
Tensor3 block_forward(const MixtureBlock& block, const Tensor3& hidden_states,
                      const LongContextInputs& inputs, MixtureBlockActivations& saved,
                      std::optional<double> capacity_factor = std::nullopt);
Tensor3 block_backward(const MixtureBlock& block, const LongContextInputs& inputs,
                       const MixtureBlockActivations& saved,
                       const Tensor3& output_gradient,  // (B, T, C)
                       MixtureBlock& gradient);

using MixtureDecoder = Decoder<MixtureBlock>;

// Appends the parameters of a mixture under the names of Qwen3-MoE and DeepSeek: gate,
// experts.0.gate_proj, shared_experts.gate_proj. The correction bias of a router is not among
// them: no gradient changes it.
void add_parameters(ParameterList& list, const std::string& name, MixtureOfExperts& mixture);
void add_parameters(ParameterList& list, const std::string& name, MixtureBlock& block);

// What the losses of the routers are multiplied by before they are added to the cross-entropy.
// Hugging Face: router_aux_loss_coef, router_z_loss_coef.
struct RouterLossCoefficients {
    Real aux_loss = 0, z_loss = 0;
};
// How a training run keeps the load balanced.
struct BalanceArguments {
    RouterLossCoefficients coefficients;
    Real bias_update_rate = 0;  // of SigmoidRouting; 0: the bias stays
    std::optional<double> capacity_factor = std::nullopt;  // none: no token is dropped
};

struct MixtureLoss {
    double cross_entropy = 0;
    double aux_loss = 0, z_loss = 0;               // sums over the layers, without coefficients
    std::vector<Vector> load;                      // (E) of each layer with a mixture
    std::size_t num_choices = 0, num_dropped = 0;  // pairs of token and expert, of all layers
};
// The loss of a batch; the gradients are accumulated. Throws ShapeError if an id lies outside
// the vocabulary.
MixtureLoss forward_backward(const MixtureDecoder& decoder,
                             const IdMatrix& input_ids,  // (B, T)
                             const IdMatrix& targets,    // (B, T)
                             const BalanceArguments& balance, MixtureDecoder& gradient);

// The logits, and the experts of each token, (N, K), in each layer with a mixture. No token is
// dropped.
struct MixtureOutput {
    Tensor3 logits;  // (B, T, V)
    std::vector<RoutedTokens> routed;
};
MixtureOutput evaluate(const MixtureDecoder& decoder, const IdMatrix& input_ids);  // (B, T)

}  // namespace llm
