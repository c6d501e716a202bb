// Chapter 20, file 3 of 8: a convolution over the last few tokens.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// For each channel w, y_t = Σ_j weight(w, j) x_(t-J+1+j): the weights of a channel see the
// token itself, last, and J - 1 tokens before it. With it, a key can depend on the token
// before: "what followed this word?" needs that. PyTorch: nn.Conv1d with groups = Cc and J - 1
// zeros on the left; its weight has the shape (Cc, 1, J). Source: "H3" (Fu et al., 2022), shift
// matrices. Throws ValueError, with both shapes, if the shapes do not match.
Tensor3 causal_conv1d(const Tensor3& input,    // (B, T, Cc)
                      const Matrix& weight,    // (Cc, J)
                      const Tensor3& before);  // (B, J - 1, Cc) -> (B, T, Cc)
// The last J - 1 inputs: what the next call needs.
Tensor3 last_inputs(const Tensor3& before,  // (B, J - 1, Cc)
                    const Tensor3& input);  // (B, T, Cc) -> (B, J - 1, Cc)
// Without earlier tokens: zeros.
Tensor3 no_inputs(std::size_t batch_size, const Matrix& weight);

// The backward pass, without earlier tokens. The gradient of the weight is accumulated.
Tensor3 causal_conv1d_backward(const Tensor3& input,            // (B, T, Cc)
                               const Matrix& weight,            // (Cc, J)
                               const Tensor3& output_gradient,  // (B, T, Cc)
                               Matrix& weight_gradient);        // -> (B, T, Cc)

}  // namespace llm
