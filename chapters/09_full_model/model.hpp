// Chapter 09 — What is a whole model?
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"

namespace llm {

// All sizes of a model, under the names of Hugging Face's config.json. The values are
// Mini-LLM's.
struct ModelConfig : Config {
    std::size_t vocab_size = 32000;               // V
    std::size_t intermediate_size = 1536;         // F
    std::size_t num_hidden_layers = 16;           // L
    bool tie_word_embeddings = true;              // does the embedding serve as head, too?
    bool attention_output_bias = false;           // has o_proj a bias, where q, k, v have one?
    bool interleaved_rope = false;                // do the weights come so (chapter 04)?
    std::optional<Llama3Scaling> rope_scaling{};  // of Llama 3.1 and later (chapter 04)

    ModelConfig();
};

// Throws ShapeError if a size is 0 or if the sizes do not fit together; fills in head_dim.
ModelConfig complete(ModelConfig config);

// Throws ShapeError if an id lies outside the vocabulary or a sequence is too long.
void check_input(const ModelConfig& config, const IdMatrix& input_ids);  // (B, T)

// How far each pair turns from one position to the next (chapter 04), scaled if the model
// scales.
Vector rotary_frequencies(const ModelConfig& config);  // (D/2)

// A decoder: ids in, logits out.
struct Model {
    ModelConfig config;
    Matrix embed_tokens;               // (V, C): a vector for every token
    std::vector<PreNormBlock> layers;  // L
    RMSNorm norm;                      // (C)
    std::optional<Matrix> lm_head;     // (V, C), or none: embed_tokens serves again

    // Logits: how well each token of the vocabulary would go on, for every position. All calls
    // throw ShapeError if an id lies outside the vocabulary or a sequence is too long.
    Tensor3 operator()(const IdMatrix& input_ids) const;  // (B, T) -> (B, T, V)

    // Its parts, in this order.
    Tensor3 embed(const IdMatrix& input_ids) const;             // (B, T) -> (B, T, C)
    RotaryTable rotary_table(std::size_t num_positions) const;  // P
    Placement placement(std::size_t batch_size, std::size_t seq_len) const;  // B, T; P = T
    Tensor3 logits(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, V)
};

// PyTorch's default start, drawn in Mini-LLM's order: embedding (normal), for each layer q, k,
// v, o, gate, down, up, then a head, which a tied model draws and drops. The numbers are those
// of interleaved weights if the configuration says so; the model itself always has split
// halves. Throws ShapeError as complete() does.
Model make_model(const ModelConfig& config, Generator& generator);

// Draws every matrix again from a normal distribution, in the same order. Real models start so,
// with a standard deviation of 0.02.
void draw_normal(Model& model, Real standard_deviation, Generator& generator);

// Numbers that training sets. With a tied head the embedding counts once.
struct ParameterCount {
    std::size_t embedding = 0, attention = 0, mlp = 0, norms = 0, head = 0;

    std::size_t total() const { return embedding + attention + mlp + norms + head; }
};
ParameterCount count_parameters(const ModelConfig& config);  // allocates nothing
ParameterCount count_parameters(const Model& model);         // of the tensors as they are

// Additions and multiplications for one token at a position, from 0: two for each number of
// every matrix it meets, and four for each number of every query head and position it sees (a
// score and a value, for every query head, shared keys or not). Source: Kaplan et al., 2020,
// section 2.1.
std::size_t operations_per_token(const ModelConfig& config, std::size_t position);

}  // namespace llm
