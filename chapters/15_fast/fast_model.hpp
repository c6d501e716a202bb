// Chapter 12 — What makes it fast?
#pragma once

#include "chapters/11_generation/generation.hpp"
#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/quantized_matrix.hpp"

namespace llm {

// Linear layers that read the same input, as one.
struct PackedLinear {
    PackedMatrix weight;
    std::vector<Real> bias;  // (out), or nothing
};

struct FastLayer {
    RMSNorm attention_norm, ffn_norm;
    PackedLinear qkv_proj;                 // (H*D + 2*Hkv*D, C)
    PackedLinear o_proj;                   // (C, H*D)
    PackedLinear gate_up_proj;             // (2F, C)
    PackedLinear down_proj;                // (C, F)
    std::optional<Vector> q_norm, k_norm;  // (D) each, or none
};

// The model of chapter 09, laid out for speed. It computes the same.
struct FastModel {
    ModelConfig config;
    PackedMatrix embed_tokens;  // (V, C)
    std::vector<FastLayer> layers;
    RMSNorm norm;
    std::optional<PackedMatrix> lm_head;  // (V, C), or none: embed_tokens serves again

    const PackedMatrix& head() const { return lm_head ? *lm_head : embed_tokens; }
    std::size_t weight_memory() const;  // bytes that every token needs, without norms
};

// Throws std::invalid_argument if the model has norms with a bias or a gate other than SwiGLU,
// and ShapeError as pack and chapter 05's attention layer do.
FastModel make_fast(const Model& model, Weights kind);

// All memory that writing a text takes: the cache, for P positions from the beginning, and
// workspace. A token asks for no memory after the first two; a prompt asks until every core has
// had a block of its size.
struct FastState {
    RotaryTable table;               // (P, D/2)
    Tensor4 keys, values;            // (L, Hkv, P, D)
    std::size_t length = 0;          // S: the tokens in it
    Matrix stream;                   // (N, C), N being the most tokens of a call so far
    Matrix qkv;                      // (N, (H + 2*Hkv)*D)
    Matrix context;                  // (N, H*D)
    Matrix logits;                   // (N or 1, V)
    struct Desk {                    // for what one core does with its tokens
        Matrix normalized, gate_up;  // (N, C), (N, 2F)
        std::vector<Real> unpacked;  // some rows of weights
        std::vector<Real> weights;   // (P): of one query
    };
    std::vector<Desk> desks;

    Rows keys_of(std::size_t layer, std::size_t head);
    Rows values_of(std::size_t layer, std::size_t head);
    std::size_t memory() const;  // bytes
};
FastState make_state(const FastModel& model, std::size_t num_positions);  // P

// Logits behind the new tokens, which join the cache: behind all of them, (T, V), or behind the
// last alone, (1, V). They stay where they are until the next call. One text at a time. Throws
// ShapeError, and leaves the cache as it was, if an id is no token or the tokens do not fit.
enum class LogitsOf { all, last };
ConstRows compute_logits(const FastModel& model, std::span<const Id> new_ids, FastState& state,
                         LogitsOf which = LogitsOf::last);

}  // namespace llm
