// Chapter 12, file 1 of 8: the cross-entropy loss.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// The cross-entropy loss: the mean of -ln p over all positions, where p is the softmax
// probability of the target. It is ln V for uniform logits. Throws ValueError if the sizes do
// not match or a target is not in the vocabulary. Source: torch.nn.functional.cross_entropy.
double cross_entropy(const Matrix& logits,      // (N, V)
                     const IdVector& targets);  // (N)

// The gradient of the loss with respect to the logits: (softmax - one_hot(target)) / N.
Matrix cross_entropy_backward(const Matrix& logits,      // (N, V)
                              const IdVector& targets);  // (N) -> (N, V)

// The same for a batch: N is B*T.
double cross_entropy(const Tensor3& logits,               // (B, T, V)
                     const IdMatrix& targets);            // (B, T)
Tensor3 cross_entropy_backward(const Tensor3& logits,     // (B, T, V)
                               const IdMatrix& targets);  // (B, T) -> (B, T, V)

}  // namespace llm
