// Chapter 17: a decoder with tied weights, whose layers may be of any type. The experiments of
// this chapter and of later ones train it.
#pragma once

#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "chapters/17_long_context/long_context_layer.hpp"

namespace llm {

// A layer has block_forward, block_backward and add_parameters, as the blocks of chapter 12.
template <class Layer>
struct Decoder {
    Matrix embed_tokens;        // (V, C)
    std::vector<Layer> layers;  // L
    RMSNorm norm;               // (C)
    RotaryTable rotary_table;   // (P, D/2)
};

template <class Layer>
std::vector<Parameter> named_parameters(Decoder<Layer>& decoder) {
    ParameterList list;
    add_parameters(list, "model.embed_tokens.weight", decoder.embed_tokens);
    for (std::size_t n = 0; n < decoder.layers.size(); ++n)
        add_parameters(list, "model.layers." + std::to_string(n), decoder.layers[n]);
    add_parameters(list, "model.norm", decoder.norm);
    return list;
}

// All layers; the activations of each are saved.
template <class Layer, class LayerActivations>
Tensor3 layers_forward(const std::vector<Layer>& layers,  // L
                       const Tensor3& embeddings,         // (B, T, C)
                       const LongContextInputs& inputs,
                       std::vector<LayerActivations>& saved) {  // -> (B, T, C)
    saved.resize(layers.size());
    std::vector<SavingLayer<Layer, LayerActivations>> saving;
    for (std::size_t n = 0; n < layers.size(); ++n) saving.push_back({&layers[n], &saved[n]});
    std::vector<RollingCache>* const no_caches = nullptr;
    return run_layers(saving, embeddings, inputs, no_caches).last_hidden_state;
}

// Throws ShapeError if an id lies outside the vocabulary.
template <class Layer>
Tensor3 embed(const Decoder<Layer>& decoder,
              const IdMatrix& input_ids) {  // (B, T) -> (B, T, C)
    const std::size_t vocab_size = decoder.embed_tokens.shape(0);
    for (const Id id : input_ids)
        require(id >= 0 && static_cast<std::size_t>(id) < vocab_size,
                "decoder: there is no token {} in a vocabulary of {}", id, vocab_size);
    return embedding(decoder.embed_tokens, input_ids);
}

template <class LayerActivations>
struct DecoderActivations {
    LongContextInputs inputs;
    std::vector<LayerActivations> layers;  // L
    Tensor3 last_hidden_state;             // (B, T, C): after the last layer
    Tensor3 normalized;                    // (B, T, C): after the final norm
};
// The logits, (B, T, V); the activations are saved.
template <class Layer, class LayerActivations>
Tensor3 decoder_forward(const Decoder<Layer>& decoder, const IdMatrix& input_ids,  // (B, T)
                        DecoderActivations<LayerActivations>& saved) {
    saved.inputs = long_context_inputs({decoder.rotary_table}, input_ids.shape(1));
    saved.last_hidden_state =
        layers_forward(decoder.layers, embed(decoder, input_ids), saved.inputs, saved.layers);
    saved.normalized = decoder.norm(saved.last_hidden_state);
    return lm_head(decoder.embed_tokens, saved.normalized);
}
// Accumulates the gradients of all parameters.
template <class Layer, class LayerActivations>
void decoder_backward(const Decoder<Layer>& decoder, const IdMatrix& input_ids,  // (B, T)
                      const DecoderActivations<LayerActivations>& saved,
                      const Tensor3& logits_gradient,  // (B, T, V)
                      Decoder<Layer>& gradient) {
    const Tensor3 normalized_gradient = lm_head_backward(
        decoder.embed_tokens, saved.normalized, logits_gradient, gradient.embed_tokens);
    Tensor3 hidden_gradient = norm_backward(decoder.norm, saved.last_hidden_state,
                                            normalized_gradient, gradient.norm);
    for (std::size_t n = decoder.layers.size(); n-- > 0;)
        hidden_gradient = block_backward(decoder.layers[n], saved.inputs, saved.layers[n],
                                         hidden_gradient, gradient.layers[n]);
    embedding_backward(input_ids, hidden_gradient, gradient.embed_tokens);
}

}  // namespace llm
