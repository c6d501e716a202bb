// Chapter 11, sixth part: decoders that differ in one choice, to be trained side by side.
#pragma once

#include <variant>

#include "chapters/13_training/optimizer.hpp"
#include "chapters/12_gradients/training.hpp"

namespace llm {

// Those that have a way back, with their names.
std::vector<std::pair<std::string, Arrangement>> trained_arrangements();

// One choice of chapters 04 to 08 each. Sizes, and how many key heads, stand in ModelConfig.
struct Choices {
    Arrangement arrangement = Arrangement::pre_norm;  // all but sandwich
    bool layer_norm = false;                          // instead of RMSNorm
    bool plain_mlp = false;  // relu and two matrices of 3/2 F: as many numbers as three of F
    bool no_rope = false;
};

// A decoder with a tied head, made as chosen. Of a post-norm model nothing stands behind the
// last block, which ends in a norm itself.
struct Variant {
    struct Layer {
        AttentionLayer self_attn;
        std::variant<GatedMlp, Mlp> mlp;
        std::variant<RMSNorm, LayerNorm> attention_norm, ffn_norm;
    };
    ModelConfig config;
    Choices choices;
    Matrix embed_tokens;  // (V, C)
    std::vector<Layer> layers;
    std::variant<RMSNorm, LayerNorm> norm;
};

// Every matrix from a normal distribution with this standard deviation; with 0 as Xavier has
// it, √(2 / (in + out)) (Glorot and Bengio, 2010). Throws ShapeError for a sandwich.
Variant make_variant(const ModelConfig& config, const Choices& choices, Real standard_deviation,
                     Generator& generator);
Variant zeros_like(const Variant& variant);
std::vector<Parameter> parameters_of(Variant& variant, Variant& gradient);
double loss_and_gradients(const Variant& variant, const IdMatrix& inputs,  // (B, T)
                          const IdMatrix& targets, Variant& gradient);     // (B, T)
double loss_of(const Variant& variant, const IdMatrix& inputs, const IdMatrix& targets);

}  // namespace llm
