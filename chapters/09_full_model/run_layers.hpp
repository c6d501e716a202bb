// Chapter 09, file 1 of 5: the loop over the layers of a decoder.
#pragma once

#include <vector>

#include "chapters/05_gqa/kv_cache.hpp"

namespace llm {

// What to return besides the last hidden states, under Hugging Face's names.
struct OutputOptions {
    bool output_hidden_states = false;
    bool output_attentions = false;
};
struct DecoderOutput {
    Tensor3 last_hidden_state;           // (B, T, C): the residual stream after the last layer
    std::vector<Tensor3> hidden_states;  // L + 1 times (B, T, C): the embeddings, then the
                                         // residual stream after each layer
    std::vector<Tensor4> attentions;     // L times (B, H, T, S)
};

// Applies the layers in order. A layer is any type that can be called as
//
//     layer(hidden_states, inputs, cache)  // (B, T, C), the inputs given here, Cache*
//
// and returns a struct with the members hidden_states, (B, T, C), and attentions. The layer
// type determines the types of the inputs and of the cache, the sliding window, the position
// encoding, the score modification and the MLP. Another architecture passes another layer type
// to the same loop. With caches, one per layer, each layer appends the keys and values of the
// new tokens to its own. Throws ValueError unless there are as many caches as layers. Source:
// Hugging Face, modeling_llama.py, LlamaModel.forward, whose last hidden states are those after
// the final norm.
template <class Layer, class Inputs, class Cache = LayerCache>
DecoderOutput run_layers(const std::vector<Layer>& layers, const Tensor3& embeddings,
                         const Inputs& inputs, std::vector<Cache>* caches = nullptr,
                         OutputOptions options = {}) {
    require(!caches || caches->size() == layers.size(), "decoder: {} caches for {} layers",
            caches ? caches->size() : 0, layers.size());
    DecoderOutput output{embeddings, {}, {}};
    for (std::size_t n = 0; n < layers.size(); ++n) {
        if (options.output_hidden_states)
            output.hidden_states.push_back(output.last_hidden_state);
        auto layer_output =
            layers[n](output.last_hidden_state, inputs, caches ? &(*caches)[n] : nullptr);
        output.last_hidden_state = std::move(layer_output.hidden_states);
        if (options.output_attentions)
            output.attentions.push_back(std::move(layer_output.attentions));
    }
    if (options.output_hidden_states) output.hidden_states.push_back(output.last_hidden_state);
    return output;
}

}  // namespace llm
