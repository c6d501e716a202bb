// Encoders at the speed of chapters 15 and 16: their layout of weights, their matrix products
// and flash attention, and the tokens of all texts in one row, without padding.
#pragma once

#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/models/encoders/encoder_model.hpp"

namespace llm::models {

// The weights of a block. Projections that read the same input are fused into one matrix.
struct FastEncoderLayer {
    NormOrIdentity attention_norm, ffn_norm;
    FastLinear qkv_proj;      // (3C, C)
    FastLinear o_proj;        // (C, C)
    FastLinear gate_up_proj;  // (2F, C); without a gate: (F, C), up_proj alone
    FastLinear down_proj;     // (C, F)
    Activation activation = GELU;
    bool has_gate = false;
    bool has_window = false;
};

// The encoder of chapter 25, without heads, with another layout of its weights. It computes the
// same vectors; those of quantized weights are rounded as in chapter 16.
struct FastEncoder {
    EncoderFamilyConfig config;
    NormPlacement norm_placement;                 // post_norm (BERT) or pre_norm (ModernBERT)
    WeightMatrix word_embeddings;                 // (V, C)
    std::optional<Matrix> position_embeddings;    // (P, C)
    std::optional<Matrix> token_type_embeddings;  // (type_vocab_size, C)
    LayerNorm embeddings_norm;
    std::vector<FastEncoderLayer> layers;  // L
    NormOrIdentity final_norm;

    // As chapter 25's encoder; padding is not computed, and its vectors are zeros. Throws
    // ValueError as check_batch and unpad do.
    Tensor3 operator()(const BatchEncoding& batch) const;  // -> (B, T, C)
};

// Quantizes the weight matrices, each in the stored_dtype of its rows; norms, biases, positions
// and token types stay in float32. Throws ValueError if weights are not finite.
FastEncoder make_fast_encoder(const AnyEncoder& encoder, DType dtype = DType::float32,
                              Activations activations = Activations::quantized);

// Loads a GGUF file of an encoder. The weights stay in the bytes of their dtypes. Throws
// FileError as load_encoder_gguf.
FastEncoder load_fast_encoder_gguf(const std::string& path,
                                   Activations activations = Activations::quantized);

// One vector of length 1 for each text, of token type 0. It does not depend on the other texts.
// Throws ValueError if a text has no token, and as check_batch does.
Matrix embed_texts(const FastEncoder& encoder, Pooling pooling,
                   const std::vector<std::vector<Id>>& texts);  // B texts -> (B, C)

}  // namespace llm::models
