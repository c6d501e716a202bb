// Chapter 25, file 2 of 7 — What else can read a text?
#pragma once

#include <cmath>

#include "chapters/09_full_model/run_layers.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/25_encoders/encoder_attention.hpp"

namespace llm {

// Layers of ModernBERT that see a window; the others see all tokens.
struct WindowedLayers {
    std::size_t window = 64;     // tokens on either side; HF: local_attention / 2
    std::size_t full_every = 3;  // layers 0, 3, 6, ... see all; HF: global_attn_every_n_layers
    Real rope_theta = 10'000;    // of these layers; HF: local_rope_theta

    bool has_window(std::size_t layer) const { return layer % full_every != 0; }
};

// The sizes of an encoder, under the names of Hugging Face's config.json. BERT and ModernBERT
// differ in their blocks and in which of the optional settings they have.
struct EncoderConfig {
    std::size_t vocab_size = 0;               // V
    std::size_t hidden_size = 0;              // C
    std::size_t intermediate_size = 0;        // F
    std::size_t num_hidden_layers = 0;        // L; 0: word embeddings alone
    std::size_t num_attention_heads = 0;      // H, divides C
    std::size_t max_position_embeddings = 0;  // P
    std::size_t type_vocab_size = 0;          // kinds of texts in a pair: 2 in BERT; 0: none
    std::optional<Real> rope_theta = std::nullopt;  // none: learned positions (BERT)
    std::optional<WindowedLayers> windowed = std::nullopt;
    Real layer_norm_eps = Real(1e-12);
    Activation hidden_act = GELU;
    bool has_bias = true;  // of linear layers and norms
};
// Throws ValueError if a size but L is 0, if H does not divide C, or if C / H is odd.
EncoderConfig validate(const EncoderConfig& config);

// What an encoder reads: B texts, padded on the right to the longest. Source: Hugging Face,
// BatchEncoding, which calls the padding mask attention_mask.
struct BatchEncoding {
    IdMatrix input_ids;       // (B, T)
    IdMatrix padding_mask;    // (B, T), 1 for a token, 0 for padding
    IdMatrix token_type_ids;  // (B, T): which text of a pair, 0 or 1
    IdMatrix position_ids;    // (B, T), from 0 in each text
    // Without padding (unpadded.hpp), B = 1 and text i has the tokens cu_seqlens[i] to
    // cu_seqlens[i + 1] - 1 of the row: cumulative lengths. Empty: a padded batch.
    std::vector<std::size_t> cu_seqlens = {};
};
// One text for each list, of token type 0. Throws ValueError if there are no tokens.
BatchEncoding pad(const std::vector<std::vector<Id>>& texts, Id pad_token_id);

// Throws ValueError if the shapes differ, if an id or a token type is not in its vocabulary, or
// if a text is longer than P.
void check_batch(const EncoderConfig& config, const BatchEncoding& batch);

// Masks and positions of a batch. Throws ValueError as check_batch does.
EncoderInputs encoder_inputs(const EncoderConfig& config, const BatchEncoding& batch);

// The sum of up to three rows for each token, normalized.
struct EncoderEmbeddings {
    using Config = EncoderConfig;
    using Input = BatchEncoding;

    Matrix word_embeddings;                       // (V, C)
    std::optional<Matrix> position_embeddings;    // (P, C), BERT
    std::optional<Matrix> token_type_embeddings;  // (type_vocab_size, C), BERT
    LayerNorm norm;

    Tensor3 operator()(const BatchEncoding& batch) const;  // -> (B, T, C)
    Tensor3 sum(const BatchEncoding& batch) const;         // before the norm
};
// The embeddings are computed again from the batch; gradients are accumulated.
void embeddings_backward(const EncoderEmbeddings& embeddings, const BatchEncoding& batch,
                         const Tensor3& output_gradient,  // (B, T, C)
                         EncoderEmbeddings& gradient);

// A norm that one layer lacks: the first of ModernBERT, whose input is normalized already.
struct NormOrIdentity {
    std::optional<LayerNorm> norm;

    Tensor3 operator()(const Tensor3& hidden_states) const {  // (B, T, C) -> (B, T, C)
        return norm ? (*norm)(hidden_states) : hidden_states;
    }
};
Tensor3 norm_backward(const NormOrIdentity& norm,
                      const Tensor3& input,            // (B, T, C)
                      const Tensor3& output_gradient,  // (B, T, C)
                      NormOrIdentity& gradient);       // -> (B, T, C)

// The blocks of chapter 08 with attention to both sides. Sources: "BERT" (Devlin et al., 2018);
// "Smarter, Better, Faster, Longer" (Warner et al., 2024), ModernBERT.
using BertBlock = PostNormBlockWith<LayerNorm, Mlp, EncoderAttention>;
using ModernBertBlock = PreNormBlockWith<NormOrIdentity, GatedMlp, EncoderAttention>;

// From token ids to one vector for each token, which depends on all tokens of its text. Other
// embeddings read another kind of input (vision.hpp), for which there are encoder_inputs and
// embeddings_backward.
template <class Block, class Embeddings = EncoderEmbeddings>
struct Encoder {
    using Input = typename Embeddings::Input;

    typename Embeddings::Config config;
    Embeddings embeddings;
    std::vector<Block> layers;  // L
    // A post-norm block ends with a norm, so BERT has no final one.
    NormOrIdentity final_norm;

    // Both throw ValueError as check_batch does.
    Tensor3 operator()(const Input& batch) const {  // -> (B, T, C)
        return final_norm(run(batch, {}).last_hidden_state);
    }
    // The layers alone, with what is asked for.
    DecoderOutput run(const Input& batch, OutputOptions options) const {
        const EncoderInputs inputs = encoder_inputs(config, batch);
        return run_layers<Block, EncoderInputs, EncoderAttention::Cache>(
            layers, embeddings(batch), inputs, nullptr, options);
    }
};
using BertModel = Encoder<BertBlock>;
using ModernBertModel = Encoder<ModernBertBlock>;

// The parameters under BERT's names of embeddings, and the names of chapter 09 in layers.
void add_parameters(ParameterList& list, const std::string& name, NormOrIdentity& norm);
void add_parameters(ParameterList& list, const std::string& name,
                    EncoderEmbeddings& embeddings);
template <class Block, class Embeddings>
void add_parameters(ParameterList& list, const std::string& name,
                    Encoder<Block, Embeddings>& encoder) {
    add_parameters(list, name + ".embeddings", encoder.embeddings);
    for (std::size_t n = 0; n < encoder.layers.size(); ++n)
        add_parameters(list, name + ".layers." + std::to_string(n), encoder.layers[n]);
    add_parameters(list, name + ".final_norm", encoder.final_norm);
}
template <class Block, class Embeddings>
std::vector<Parameter> named_parameters(Encoder<Block, Embeddings>& encoder) {
    ParameterList list;
    add_parameters(list, "encoder", encoder);
    return list;
}

// A linear layer with all weights 0.
Linear zero_linear(std::size_t in_features, std::size_t out_features, bool has_bias);
// Encoders with all weights 0 and norms of weight 1. Throw ValueError as validate() does.
BertModel empty_bert(const EncoderConfig& config);
ModernBertModel empty_modern_bert(const EncoderConfig& config);
// Samples matrices from N(0, 0.02²); those of o_proj and down_proj are then divided by √(2L),
// as in chapter 13.
template <class Block, class Embeddings>
void init_weights(Encoder<Block, Embeddings>& encoder, Generator& generator) {
    const Real depth = std::sqrt(Real(2 * encoder.layers.size()));
    for (const Parameter& parameter : named_parameters(encoder)) {
        if (parameter.shape.size() < 2) continue;
        const bool is_residual = parameter.name.ends_with("o_proj.weight") ||
                                 parameter.name.ends_with("down_proj.weight");
        generator.fill_normal(parameter.values);
        for (Real& value : parameter.values) value *= Real(0.02) / (is_residual ? depth : 1);
    }
}

// The vector of the first token, [CLS], through a linear layer and tanh: what BERT's
// classifiers read. Source: Hugging Face, BertPooler.
struct Pooler {
    Linear dense;  // (C, C)

    Matrix operator()(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, C)
};

// Forward and backward passes for training, with the blocks of chapter 12.
template <class Block, class Input = BatchEncoding>
struct EncoderActivations {
    Input batch;
    EncoderInputs inputs;
    std::vector<ActivationsOf<Block>> layers;  // L
    Tensor3 last_hidden_state;                 // (B, T, C): before the final norm
};
template <class Block, class Embeddings>
ForwardPass<EncoderActivations<Block, typename Embeddings::Input>> encoder_forward(
    const Encoder<Block, Embeddings>& encoder, const typename Embeddings::Input& batch) {
    EncoderInputs inputs = encoder_inputs(encoder.config, batch);
    auto [hidden_states, layers] =
        layers_forward(encoder.layers, encoder.embeddings(batch), inputs);
    Tensor3 output = encoder.final_norm(hidden_states);
    return {std::move(output),
            {batch, std::move(inputs), std::move(layers), std::move(hidden_states)}};
}
template <class Block, class Embeddings>
void encoder_backward(const Encoder<Block, Embeddings>& encoder,
                      const EncoderActivations<Block, typename Embeddings::Input>& saved,
                      const Tensor3& output_gradient,  // (B, T, C)
                      Encoder<Block, Embeddings>& gradient) {
    const Tensor3 hidden_gradient = norm_backward(encoder.final_norm, saved.last_hidden_state,
                                                  output_gradient, gradient.final_norm);
    embeddings_backward(encoder.embeddings, saved.batch,
                        layers_backward(encoder.layers, saved.inputs, saved.layers,
                                        hidden_gradient, gradient.layers),
                        gradient.embeddings);
}

extern template struct PostNormBlockWith<LayerNorm, Mlp, EncoderAttention>;
extern template struct PreNormBlockWith<NormOrIdentity, GatedMlp, EncoderAttention>;
extern template struct Encoder<BertBlock>;
extern template struct Encoder<ModernBertBlock>;

}  // namespace llm
