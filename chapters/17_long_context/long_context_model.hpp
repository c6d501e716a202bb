// Chapter 17: whole models of published types: Mistral 7B v0.1, Gemma 2 and Gemma 3.
#pragma once

#include "chapters/11_generation/generation.hpp"
#include "chapters/17_long_context/long_context_config.hpp"
#include "chapters/17_long_context/long_context_layer.hpp"

namespace llm {

// The sandwich block of chapter 08 with this chapter's attention. Source: Hugging Face,
// modeling_gemma2.py, Gemma2DecoderLayer.
using LongContextSandwichBlock = SandwichBlockWith<LongContextAttention>;

// One layer of a model, of either kind.
struct LongContextLayer {
    std::variant<LongContextBlock, LongContextSandwichBlock> block;

    const LongContextAttention& self_attn() const;
    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T, C)
                                      const LongContextInputs& inputs,
                                      RollingCache* cache = nullptr) const;
};

// The caches of a model, and the rotary tables of its P positions.
struct LongContextCache {
    std::vector<RotaryTable> rotary_tables;  // (P, D/2) each
    std::vector<RollingCache> layers;        // L
    std::size_t seq_len = 0;                 // tokens so far
};

// From token ids to logits.
struct LongContextModel {
    LongContextConfig config;
    Matrix embed_tokens;                   // (V, C)
    std::vector<LongContextLayer> layers;  // L
    RMSNorm norm;                          // (C)
    std::optional<Matrix> lm_head;         // (V, C); none if tied to embed_tokens

    // The logits of the next token at each position, or of the last one. With a cache,
    // the new tokens follow the cached ones. Throws ShapeError as check_input() of chapter 09
    // does, also if the cached and the new tokens exceed max_position_embeddings.
    Tensor3 operator()(const IdMatrix& input_ids) const;  // (B, T) -> (B, T, V)
    ModelOutput forward(const IdMatrix& input_ids,        // (B, T)
                        LongContextCache* cache,
                        LogitsToKeep logits_to_keep = LogitsToKeep::all) const;

    // The steps of forward(), before and after run_layers. Gemma multiplies embeddings by √C.
    Tensor3 embed(const IdMatrix& input_ids) const;      // (B, T) -> (B, T, C)
    Tensor3 logits(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, V)
};

// The rotary tables for P positions: one for layers with full attention, and, if the model has
// another theta for windows, a second one.
std::vector<RotaryTable> rotary_tables(const LongContextConfig& config,
                                       std::size_t num_positions);  // P

// An empty cache for P positions; that of each layer holds what its pattern needs.
LongContextCache make_cache(const LongContextModel& model, std::size_t num_positions);

// generate() of chapter 11 for these models. Throws ShapeError for context_shift, too.
std::vector<Id> generate(const LongContextModel& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {});

}  // namespace llm
