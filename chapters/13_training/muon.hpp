// Chapter 13, file 10 of 10: Muon, an optimizer for hidden matrices.
#pragma once

#include <vector>

#include "chapters/09_full_model/parameters.hpp"

namespace llm {

// Returns a matrix close to U Vᵀ, where U S Vᵀ is the singular value decomposition of the given
// matrix: five Newton–Schulz steps bring each singular value near 1 (0.7 to 1.2, unless it is
// below about 0.001 times the Frobenius norm). Source: Jordan et al., 2024, "Muon".
Matrix newton_schulz(const Matrix& matrix);  // (out, in) -> (out, in)

// True for the matrices of attention and MLP, not for embedding, head, norms and biases.
bool is_hidden_matrix(const Parameter& parameter);

// Muon: gradient descent with Nesterov momentum, whose updates are orthogonalized. An update
// has the root mean square 0.2, which is typical of AdamW's, so that learning rate and weight
// decay can be the same for both. Source: torch.optim.Muon with adjust_lr_fn="match_rms_adamw";
// Liu et al., 2025, section 2.2.
struct Muon {
    Real momentum = Real(0.95), weight_decay = Real(0.1);
    std::vector<Matrix> momentum_buffer;  // moving averages of the gradients

    // Updates hidden matrices, several at a time on several cores. The first call also calls
    // reset. Throws ValueError unless parameters and gradients have the same names and shapes,
    // all with two axes, equal to those of the previous steps.
    void step(const std::vector<Parameter>& parameters, const std::vector<Parameter>& gradients,
              Real learning_rate);

    // Sets all momentum buffers to 0.
    void reset(const std::vector<Parameter>& parameters);
};

}  // namespace llm
