// Chapter 13, ablations: variants of a Llama-style decoder.
#pragma once

#include <variant>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/model_backward.hpp"

namespace llm {

// The design choices of chapters 04, 06, 07 and 08. (Sizes and the number of key/value heads
// are in Config.) LayerNorm and Mlp are supported in pre-norm blocks only.
struct AblationConfig {
    NormPlacement norm_placement = NormPlacement::pre_norm;
    bool layer_norm = false;  // LayerNorm instead of RMSNorm
    bool relu_mlp = false;    // Mlp with ReLU and 3/2 F: the parameter count of SwiGLU with F
    bool use_rope = true;     // if false, all position ids are 0
};

// Forward and backward passes of chapter 12, for a block of any of these types.
using AblationBlock =
    std::variant<PreNormBlock, PostNormBlock, ResPostNormBlock, SandwichBlock, ParallelBlock,
                 PreNormBlockWith<LayerNorm, GatedMlp>, PreNormBlockWith<RMSNorm, Mlp>,
                 PreNormBlockWith<LayerNorm, Mlp>>;
Tensor3 block_forward(const AblationBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator = nullptr);
Tensor3 block_backward(const AblationBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       AblationBlock& gradient);

// A decoder with tied weights. Post-norm blocks end with a norm, so post-norm models have no
// final norm (std::monostate).
using FinalNorm = std::variant<std::monostate, RMSNorm, LayerNorm>;
struct AblationModel {
    Config config;
    AblationConfig ablation;
    Matrix embed_tokens;  // (V, C)
    std::vector<AblationBlock> layers;
    FinalNorm norm;
};

// The standard deviation of the initial weights: 0.02, or √(2 / (fan_in + fan_out)). Source:
// torch.nn.init.normal_ and xavier_normal_ (Glorot and Bengio, 2010).
enum class WeightInit { normal, xavier_normal };

// Throws ShapeError for LayerNorm or Mlp with norm placements other than pre-norm.
AblationModel make_ablation_model(const Config& config, const AblationConfig& ablation,
                                  WeightInit init, Generator& generator);

// The same functions as for Model in chapters 09 and 12.
std::vector<Parameter> named_parameters(AblationModel& model);
double forward_backward(const AblationModel& model, const IdMatrix& input_ids,  // (B, T)
                        const IdMatrix& targets,                                // (B, T)
                        AblationModel& gradient);
double evaluate_loss(const AblationModel& model, const IdMatrix& input_ids,  // (B, T)
                     const IdMatrix& targets);                               // (B, T)

}  // namespace llm
