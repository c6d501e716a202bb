// Chapter 18, file 4 of 7: one expert: the gated MLP of chapter 06, or that of gpt-oss.
#pragma once

#include <variant>

#include "chapters/12_gradients/mlp_backward.hpp"

namespace llm {

// down_proj((up + 1) · gate · sigmoid(alpha · gate)), where gate is at most limit, and up
// between -limit and limit. Source: Hugging Face, modeling_gpt_oss.py, GptOssExperts.
struct ClampedGatedMlp {
    Linear gate_proj, up_proj;  // (F, C), with bias
    Linear down_proj;           // (C, F), with bias
    Real alpha = Real(1.702), limit = 7;
};
using Expert = std::variant<GatedMlp, ClampedGatedMlp>;

// Forward and backward passes, as those of chapter 12.
ForwardPass<MlpActivations> mlp_forward(const ClampedGatedMlp& mlp,
                                        const Tensor3& input);  // (B, T, C)
Tensor3 mlp_backward(const ClampedGatedMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient,  // (B, T, C)
                     ClampedGatedMlp& gradient);
ForwardPass<MlpActivations> expert_forward(const Expert& expert,
                                           const Tensor3& input);  // (B, T, C)
Tensor3 expert_backward(const Expert& expert, const MlpActivations& saved,
                        const Tensor3& output_gradient,  // (B, T, C)
                        Expert& gradient);

}  // namespace llm
