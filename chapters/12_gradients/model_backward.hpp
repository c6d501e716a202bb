// Chapter 12: forward and backward passes of the model of chapter 09.
#pragma once

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/block_backward.hpp"

namespace llm {

// What the backward pass of a model needs from its forward pass.
struct ModelActivations {
    IdMatrix input_ids;                    // (B, T)
    AttentionInputs attention_inputs;      // of T positions
    std::vector<BlockActivations> layers;  // L
    Tensor3 last_hidden_state;             // (B, T, C): after the last layer
    Tensor3 normalized;                    // (B, T, C): after the final norm
};

// The same logits as model(input_ids), (B, T, V); the activations are saved. A generator
// enables dropout (training mode). Throws ShapeError as the model does.
Tensor3 model_forward(const Model& model, const IdMatrix& input_ids,  // (B, T)
                      ModelActivations& saved, Generator* dropout_generator = nullptr);
// The same with other position ids and another mask, for example those of packed documents
// (chapter 13).
Tensor3 model_forward(const Model& model, const IdMatrix& input_ids,  // (B, T)
                      const AttentionInputs& attention_inputs,        // of T positions
                      ModelActivations& saved, Generator* dropout_generator = nullptr);

// Accumulates the gradient of the loss with respect to every parameter of the model.
void model_backward(const Model& model, const ModelActivations& saved,
                    const Tensor3& logits_gradient,  // (B, T, V)
                    Model& gradient);

// The LM head alone: its weight is lm_head, or embed_tokens if they are tied. Returns the
// gradient with respect to the hidden states, (B, T, C).
Tensor3 lm_head_backward(const Matrix& weight,            // (V, C)
                         const Tensor3& hidden_states,    // (B, T, C)
                         const Tensor3& logits_gradient,  // (B, T, V)
                         Matrix& gradient);               // (V, C)

// The loss of a batch; the gradients are accumulated. Position t of the inputs predicts
// position t of the targets. Throws ShapeError as the model does, and if the shapes differ.
double forward_backward(const Model& model, const IdMatrix& input_ids,  // (B, T)
                        const IdMatrix& targets,                        // (B, T)
                        Model& gradient, Generator* dropout_generator = nullptr);
double forward_backward(const Model& model, const IdMatrix& input_ids,  // (B, T)
                        const IdMatrix& targets,                        // (B, T)
                        const AttentionInputs& attention_inputs,        // of T positions
                        Model& gradient, Generator* dropout_generator = nullptr);
// The loss alone, without dropout.
double evaluate_loss(const Model& model, const IdMatrix& input_ids,  // (B, T)
                     const IdMatrix& targets);                       // (B, T)
double evaluate_loss(const Model& model, const IdMatrix& input_ids,  // (B, T)
                     const IdMatrix& targets,                        // (B, T)
                     const AttentionInputs& attention_inputs);       // of T positions

// The gradients of a model, or of anything that has named_parameters, are stored in a second
// one: the same tensors, initialized to 0. Source: torch.optim.Optimizer.zero_grad.
template <class AnyModel>
void zero_grad(AnyModel& gradient) {
    for (const Parameter& parameter : named_parameters(gradient))
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
}
template <class AnyModel>
AnyModel zeros_like(const AnyModel& model) {
    AnyModel zeros = model;
    zero_grad(zeros);
    return zeros;
}

}  // namespace llm
