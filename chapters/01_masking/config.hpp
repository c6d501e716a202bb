// Chapter 01, file 2 of 2: the sizes of a model, under the names of Hugging Face's config.json.
#pragma once

#include <optional>
#include <variant>

#include "common/tensors/tensor.hpp"

namespace llm {

// Which projections of an attention layer add a bias (chapter 02).
enum class AttentionBias {
    none,  // Llama
    qkv,   // q_proj, k_proj and v_proj: Qwen2
    qkvo   // all four: config.json's attention_bias
};

// How queries and keys are normalized (chapter 05).
enum class QKNormType {
    none,             // Llama
    without_weights,  // after RoPE
    with_weights,     // before RoPE: Qwen3
    over_all_heads    // before RoPE: one norm over the heads of a token, with weights
};

// The rope_scaling of Llama 3.1, of rope_type llama3 (chapter 04).
struct Llama3Scaling {
    Real factor = 8;
    Real low_freq_factor = 1;
    Real high_freq_factor = 4;
    Real original_max_position_embeddings = 8192;

    bool operator==(const Llama3Scaling&) const = default;
};

// Explicit divisors of RoPE's frequencies, one per pair: how GGUF files describe the same
// scaling (chapter 09). ggml calls them freq_factors.
struct FrequencyFactors {
    Vector factors;  // (D/2)

    bool operator==(const FrequencyFactors&) const = default;
};

// The configuration of a model. The defaults are those of the programs of chapters 01 to 08,
// which build no whole model: the last four sizes are 0 until chapter 09 needs them.
struct Config {
    std::size_t hidden_size = 128;              // C: features per token
    std::size_t num_attention_heads = 16;       // H: query heads
    std::size_t num_key_value_heads = 4;        // Hkv: key and value heads, divides H
    std::size_t head_dim = 0;                   // D: features per head; 0 means C / H
    std::size_t max_position_embeddings = 256;  // the longest sequence
    Real rope_theta = 10000;                    // the base of RoPE's frequencies (04)
    Real rms_norm_eps = 1e-5f;                  // added to the mean square of RMSNorm (07)
    AttentionBias attention_bias = AttentionBias::none;  // 02
    Real attention_dropout = 0;                          // probability, in training only (05)
    QKNormType qk_norm = QKNormType::without_weights;    // 05
    std::optional<std::variant<Llama3Scaling, FrequencyFactors>> rope_scaling =
        std::nullopt;  // 04

    std::size_t vocab_size = 0;         // V
    std::size_t intermediate_size = 0;  // F: the width of the MLP (06)
    std::size_t num_hidden_layers = 0;  // L
    bool tie_word_embeddings = true;    // is lm_head the embedding matrix (09)?
};

// Checks the sizes that attention needs, and fills in head_dim. Throws ValueError if one is 0,
// if H does not divide C (unless head_dim is given), if Hkv does not divide H, or if the
// sequence is longer than max_position_embeddings.
Config validate(Config config, std::size_t seq_len);

}  // namespace llm
