// Chapter 12, file 8 of 8: forward and backward passes of the model of chapter 09, with layers
// of any type.
#pragma once

#include <functional>

#include "chapters/01_masking/masking.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/block_backward.hpp"
#include "chapters/12_gradients/block_parameters.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"

namespace llm {

// What the backward passes of model.logits and of a whole model need from the forward pass.
struct LogitsActivations {
    Tensor3 last_hidden_state;             // (B, T, C): after the last layer
    Tensor3 normalized;                    // (B, T, C): after the final norm
    std::optional<Tensor3> capped_logits;  // (B, T, V), if the model has a soft cap
};
template <class Layer>
struct DecoderActivations {
    using Inputs = typename Layer::AttentionType::Inputs;
    IdMatrix input_ids;                        // (B, T)
    Inputs attention_inputs;                   // of T positions
    std::vector<ActivationsOf<Layer>> layers;  // L
    LogitsActivations head;
};
using ModelActivations = DecoderActivations<PreNormBlock>;

// The LM head alone: its weight is lm_head, or embed_tokens if they are tied. Returns the
// gradient with respect to the hidden states, (B, T, C).
Tensor3 lm_head_backward(const Matrix& weight,            // (V, C)
                         const Tensor3& hidden_states,    // (B, T, C)
                         const Tensor3& logits_gradient,  // (B, T, V)
                         Matrix& gradient);               // (V, C)

// The backward pass of logit_softcap of chapter 09. Takes the output of the forward pass;
// returns the gradient with respect to its input.
Matrix logit_softcap_backward(const Matrix& capped, Real cap,
                              const Matrix& output_gradient);  // (N, V) -> (N, V)
Tensor3 logit_softcap_backward(const Tensor3& capped, Real cap,
                               const Tensor3& output_gradient);  // (B, T, V) -> (B, T, V)

// All layers, and the activations of each. A generator enables dropout.
template <class Layer, class Inputs>
ForwardPass<std::vector<ActivationsOf<Layer>>> layers_forward(
    const std::vector<Layer>& layers,  // L
    const Tensor3& embeddings,         // (B, T, C)
    const Inputs& inputs, Generator* dropout_generator = nullptr) {
    // Run the layers with the loop of chapter 09; each saves its activations.
    std::vector<ActivationsOf<Layer>> saved(layers.size());
    std::vector<SavingLayer<Layer>> saving;
    for (std::size_t n = 0; n < layers.size(); ++n)
        saving.push_back({&layers[n], &saved[n], dropout_generator});
    return {run_layers(saving, embeddings, inputs).last_hidden_state, std::move(saved)};
}

// The backward pass of all layers, last to first: from the gradient with respect to their
// output to that with respect to the embeddings, (B, T, C). Calls after_layer(n) when the
// gradient of layer n is complete.
template <class Layer, class Inputs>
Tensor3 layers_backward(const std::vector<Layer>& layers,  // L
                        const Inputs& inputs, const std::vector<ActivationsOf<Layer>>& saved,
                        Tensor3 hidden_gradient,  // (B, T, C)
                        std::vector<Layer>& gradient,
                        const std::function<void(std::size_t n)>& after_layer = {}) {
    for (std::size_t n = layers.size(); n-- > 0;) {
        hidden_gradient =
            block_backward(layers[n], inputs, saved[n], hidden_gradient, gradient[n]);
        if (after_layer) after_layer(n);
    }
    return hidden_gradient;
}

// The output is model.logits(last_hidden_state), (B, T, V).
template <class Layer, class AnyConfig, class FinalNorm>
ForwardPass<LogitsActivations> logits_forward(
    const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
    Tensor3 last_hidden_state) {  // (B, T, C)
    Tensor3 normalized = model.norm(last_hidden_state);
    Tensor3 logits = model.head_logits(normalized);
    std::optional<Tensor3> capped_logits;
    if (model.final_logit_softcapping) capped_logits = logits;
    return {std::move(logits),
            {std::move(last_hidden_state), std::move(normalized), std::move(capped_logits)}};
}
// Returns the gradient with respect to the last hidden state, (B, T, C).
template <class Layer, class AnyConfig, class FinalNorm>
Tensor3 logits_backward(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                        const LogitsActivations& saved,
                        Tensor3 logits_gradient,  // (B, T, V)
                        DecoderModel<Layer, AnyConfig, FinalNorm>& gradient) {
    // The soft cap of the logits, and their scale.
    if (const auto& cap = model.final_logit_softcapping)
        logits_gradient = logit_softcap_backward(*saved.capped_logits, *cap, logits_gradient);
    if (model.logits_scaling != 1) logits_gradient = logits_gradient / model.logits_scaling;

    // The LM head. If it is tied, its gradient is accumulated in that of the embedding.
    Matrix& head_gradient = model.lm_head ? *gradient.lm_head : gradient.embed_tokens;
    const Tensor3 normalized_gradient =
        lm_head_backward(model.head(), saved.normalized, logits_gradient, head_gradient);
    return norm_backward(model.norm, saved.last_hidden_state, normalized_gradient,
                         gradient.norm);
}

// The backward pass of model.embed(input_ids): learned positions, if there are any, and tokens.
template <class Layer, class AnyConfig, class FinalNorm>
void embed_backward(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                    const IdMatrix& input_ids,    // (B, T)
                    Tensor3 embeddings_gradient,  // (B, T, C)
                    DecoderModel<Layer, AnyConfig, FinalNorm>& gradient) {
    if (model.embed_positions) {
        const auto [batch_size, seq_len] = dims(input_ids);
        embedding_backward(position_ids(batch_size, seq_len), embeddings_gradient,
                           *gradient.embed_positions);
    }
    if (model.embedding_scale != 1)
        embeddings_gradient = embeddings_gradient * model.embedding_scale;
    embedding_backward(input_ids, embeddings_gradient, gradient.embed_tokens);
}

// The output is model(input_ids), the logits, (B, T, V). A generator enables dropout (training
// mode). Throws ValueError as the model does.
template <class Layer, class AnyConfig, class FinalNorm>
ForwardPass<DecoderActivations<Layer>> model_forward(
    const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
    const IdMatrix& input_ids,  // (B, T)
    Generator* dropout_generator = nullptr) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const auto inputs = Layer::AttentionType::Inputs::make(rotary_tables(model.config, seq_len),
                                                           batch_size, seq_len);
    return model_forward(model, input_ids, inputs, dropout_generator);
}
// The same with other position ids and another mask, for example those of packed documents
// (chapter 13).
template <class Layer, class AnyConfig, class FinalNorm>
ForwardPass<DecoderActivations<Layer>> model_forward(
    const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
    const IdMatrix& input_ids,                                           // (B, T)
    const typename DecoderActivations<Layer>::Inputs& attention_inputs,  // of T positions
    Generator* dropout_generator = nullptr) {
    auto [last_hidden_state, layers] = layers_forward(model.layers, model.embed(input_ids),
                                                      attention_inputs, dropout_generator);
    auto [logits, head] = logits_forward(model, std::move(last_hidden_state));
    return {std::move(logits),
            {input_ids, attention_inputs, std::move(layers), std::move(head)}};
}

// Accumulates the gradient of the loss with respect to every parameter of the model. Calls
// after_layer(n) when that of layer n is complete.
template <class Layer, class AnyConfig, class FinalNorm>
void model_backward(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                    const DecoderActivations<Layer>& saved,
                    const Tensor3& output_gradient,  // (B, T, V)
                    DecoderModel<Layer, AnyConfig, FinalNorm>& gradient,
                    const std::function<void(std::size_t n)>& after_layer = {}) {
    Tensor3 hidden_gradient = logits_backward(model, saved.head, output_gradient, gradient);
    hidden_gradient = layers_backward(model.layers, saved.attention_inputs, saved.layers,
                                      std::move(hidden_gradient), gradient.layers, after_layer);
    embed_backward(model, saved.input_ids, std::move(hidden_gradient), gradient);
}

// The loss of a batch; the gradients are accumulated. Position t of the inputs predicts
// position t of the targets. Throws ValueError as the model does, and if the shapes differ.
template <class Layer, class AnyConfig, class FinalNorm>
double forward_backward(
    const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
    const IdMatrix& input_ids,                                           // (B, T)
    const IdMatrix& targets,                                             // (B, T)
    const typename DecoderActivations<Layer>::Inputs& attention_inputs,  // of T positions
    DecoderModel<Layer, AnyConfig, FinalNorm>& gradient,
    Generator* dropout_generator = nullptr) {
    const auto [logits, activations] =
        model_forward(model, input_ids, attention_inputs, dropout_generator);
    const double loss = cross_entropy(logits, targets);
    model_backward(model, activations, cross_entropy_backward(logits, targets), gradient);
    return loss;
}
template <class Layer, class AnyConfig, class FinalNorm>
double forward_backward(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                        const IdMatrix& input_ids,  // (B, T)
                        const IdMatrix& targets,    // (B, T)
                        DecoderModel<Layer, AnyConfig, FinalNorm>& gradient,
                        Generator* dropout_generator = nullptr) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const auto inputs = Layer::AttentionType::Inputs::make(rotary_tables(model.config, seq_len),
                                                           batch_size, seq_len);
    return forward_backward(model, input_ids, targets, inputs, gradient, dropout_generator);
}

// The loss alone, without dropout.
template <class Layer, class AnyConfig, class FinalNorm>
double evaluate_loss(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                     const IdMatrix& input_ids,  // (B, T)
                     const IdMatrix& targets) {  // (B, T)
    return cross_entropy(model(input_ids), targets);
}
double evaluate_loss(const Model& model, const IdMatrix& input_ids,  // (B, T)
                     const IdMatrix& targets,                        // (B, T)
                     const AttentionInputs& attention_inputs);       // of T positions

// The gradients of a model, or of anything that has named_parameters, are stored in a second
// one: the same tensors, initialized to 0. Source: torch.optim.Optimizer.zero_grad.
inline void fill_with_zeros(const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters)
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
}
template <class AnyModel>
void zero_grad(AnyModel& gradient) {
    fill_with_zeros(named_parameters(gradient));
}
template <class AnyModel>
AnyModel zeros_like(const AnyModel& model) {
    AnyModel zeros = model;
    zero_grad(zeros);
    return zeros;
}

}  // namespace llm
