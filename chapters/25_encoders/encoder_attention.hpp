// Chapter 25, file 1 of 7: attention that sees both sides of a token.
#pragma once

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/attention_backward.hpp"

namespace llm {

// Added to the attention scores of an encoder: 0 where query t may attend to key s, -inf
// elsewhere. Every token sees the tokens before and after it, but no padding. With a window, it
// sees those at most `window` positions away, on either side. Source: Hugging Face,
// modeling_bert.py and modeling_modernbert.py, whose local_attention is twice this window.
Tensor4 bidirectional_mask(const IdMatrix& padding_mask,  // (B, T), 1 for a token, 0: padding
                           std::optional<std::size_t> window = std::nullopt);  // (B, 1, T, T)

// The inputs of all attention layers of an encoder.
struct EncoderInputs {
    AttentionInputs full;                     // layers that see all tokens
    std::optional<AttentionInputs> windowed;  // layers that see a window, if there are any
    // Of a batch without padding (unpadded.hpp): the tokens of text i of the row are
    // cu_seqlens[i] to cu_seqlens[i + 1] - 1, and the masks are those of the longest text.
    // Empty: a padded batch.
    std::vector<std::size_t> cu_seqlens = {};
};

// The attention layer of chapter 05 with one of these inputs.
struct EncoderAttention {
    AttentionLayer layer;
    bool has_window = false;

    using Inputs = EncoderInputs;
    struct Cache {};  // an encoder reads a text once: no later token needs its keys

    // Throws ValueError if the shapes do not match, or if the inputs have no window.
    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T, C)
                                      const EncoderInputs& inputs,   // of T positions
                                      Cache* cache = nullptr) const;
};
const AttentionInputs& inputs_of(const EncoderAttention& attention,
                                 const EncoderInputs& inputs);

// Forward and backward passes, those of chapter 12. Throw ValueError for batches without
// padding.
ForwardPass<AttentionActivations> attention_forward(const EncoderAttention& attention,
                                                    const Tensor3& input,  // (B, T, C)
                                                    const EncoderInputs& inputs,
                                                    Generator* dropout_generator = nullptr);
Tensor3 attention_backward(const EncoderAttention& attention, const EncoderInputs& inputs,
                           const AttentionActivations& saved,
                           const Tensor3& output_gradient,  // (B, T, C)
                           EncoderAttention& gradient);     // -> (B, T, C)

void add_parameters(ParameterList& list, const std::string& name, EncoderAttention& attention);

}  // namespace llm
