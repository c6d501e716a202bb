// Chapter 09 — What is a whole model?
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "chapters/09_full_model/decoder.hpp"

namespace llm {

// The configuration of Mini-LLM, a small open model of the Llama architecture.
Config mini_llm_config();

// Checks all sizes of a model, and sets head_dim if it is 0. Throws ShapeError if another size
// is 0, if sizes are inconsistent, or if head_dim is odd.
Config validate_model(Config config);

// Throws ShapeError if there are no ids, if an id lies outside the vocabulary, or if a sequence
// is longer than max_position_embeddings.
void check_input(const Config& config, const IdMatrix& input_ids);  // (B, T)

// The rows of the ids. The ids must be in the vocabulary. Source:
// torch.nn.functional.embedding.
Tensor3 embedding(const Matrix& weight,        // (V, C)
                  const IdMatrix& input_ids);  // (B, T) -> (B, T, C)

// The logits of normalized hidden states: a linear layer without bias, whose weight is not
// copied.
Tensor3 lm_head(const Matrix& weight,           // (V, C)
                const Tensor3& hidden_states);  // (B, T, C) -> (B, T, V)

// The KV cache of a model: one cache per layer, and the rotary table of its P positions.
struct KVCache {
    RotaryTable rotary_table;        // (P, D/2)
    std::vector<LayerCache> layers;  // L
    std::size_t seq_len = 0;         // S: the number of cached tokens
};

// The positions whose logits are computed; generation needs the last one alone.
// Source: Hugging Face, logits_to_keep.
enum class LogitsToKeep { all, last };

// The optional inputs of a forward pass, and what it returns.
struct ForwardOptions {
    KVCache* cache = nullptr;  // the new tokens attend to it and are appended to it
    LogitsToKeep logits_to_keep = LogitsToKeep::all;
    bool output_hidden_states = false;
    bool output_attentions = false;
};
// Source: Hugging Face, CausalLMOutputWithPast.
struct ModelOutput {
    Tensor3 logits;                      // (B, T, V), or (B, 1, V) of the last position
    std::vector<Tensor3> hidden_states;  // L + 1 times (B, T, C), or empty
    std::vector<Tensor4> attentions;     // L times (B, H, T, S), or empty
};

// A decoder-only transformer: from token ids to logits. Source: Llama 2 (Touvron et al., 2023).
struct Model {
    Config config;
    Matrix embed_tokens;               // (V, C): one row per token of the vocabulary
    std::vector<PreNormBlock> layers;  // L
    RMSNorm norm;                      // (C)
    std::optional<Matrix> lm_head;     // (V, C); none if tied to embed_tokens

    const Matrix& head() const { return lm_head ? *lm_head : embed_tokens; }  // (V, C)

    // The logits of the next token at each position. All functions that take ids throw
    // ShapeError as check_input() does, or if a cache has too few positions, and then leave the
    // cache unchanged.
    Tensor3 operator()(const IdMatrix& input_ids) const;  // (B, T) -> (B, T, V)
    ModelOutput forward(const IdMatrix& input_ids,        // (B, T)
                        const ForwardOptions& options) const;

    // The steps of forward(), in this order; run_layers is the step between the last two.
    Tensor3 embed(const IdMatrix& input_ids) const;             // (B, T) -> (B, T, C)
    RotaryTable rotary_table(std::size_t num_positions) const;  // P
    Tensor3 logits(const Tensor3& hidden_states) const;         // (B, T, C) -> (B, T, V)
};

// An empty cache for P positions. Throws ShapeError if P exceeds max_position_embeddings.
KVCache make_cache(const Model& model, std::size_t num_positions);

// Initializes all weights with PyTorch's defaults, in Mini-LLM's order: embed_tokens, normal
// with standard deviation 1; q, k, v, o, gate, down and up of each layer; lm_head, which a tied
// model discards. The layout is that of the initialized q_proj and k_proj; interleaved ones are
// converted, because a model always uses split halves. Throws ShapeError as validate_model()
// does.
Model make_model(const Config& config, Generator& generator,
                 RopeLayout layout = RopeLayout::split_half);

// Reinitializes every matrix, in the same order, from a normal distribution with mean 0.
// Hugging Face's Llama uses a standard deviation of 0.02, initializer_range. Source:
// torch.nn.init.normal_.
void init_normal(Model& model, Real standard_deviation, Generator& generator);

}  // namespace llm
