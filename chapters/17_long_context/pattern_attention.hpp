// Chapter 17, file 4 of 8: an attention layer and a block with a pattern, a rolling cache, an
// optional RoPE and a score modification of their own; run_layers of chapter 09 applies them.
#pragma once

#include <cstdint>

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/rolling_cache.hpp"
#include "chapters/17_long_context/score_mod.hpp"

namespace llm {

// The inputs of all layers other than the hidden states.
struct PatternAttentionInputs {
    std::vector<RotaryTable> rotary_tables;  // (T, D/2); layers may have different ones
    IdVector position_ids;                   // (T), the same for all sequences

    static PatternAttentionInputs make(const std::vector<RotaryTable>& rotary_tables,
                                       std::size_t batch_size, std::size_t seq_len,
                                       std::size_t past_len = 0);
};
// For T tokens that follow past_len earlier ones: their rows of the tables. (Hugging Face:
// position_embeddings.) Throws ValueError if a table is too short.
PatternAttentionInputs pattern_attention_inputs(
    const std::vector<RotaryTable>& rotary_tables,  // (P, D/2) each
    std::size_t seq_len, std::size_t past_len = 0);

// How a layer knows positions. RoPE: by the angles of one of the rotary tables. NoPE: it does
// not, apart from the mask.
struct RoPE {
    std::size_t table = 0;  // index into rotary_tables
};
struct NoPE {};
using LayerPositionEncoding = std::variant<RoPE, NoPE>;

// The attention layer of chapter 05 with a pattern, a position encoding, a temperature and a
// score modification. Source: Hugging Face, modeling_gemma3.py, modeling_gpt_oss.py,
// modeling_llama4.py.
struct PatternAttention {
    AttentionLayer layer;  // projections, numbers of heads and QK norm
    AttentionPattern pattern = FullAttention{};
    LayerPositionEncoding position_encoding = RoPE{};
    std::optional<TemperatureTuning> temperature_tuning = std::nullopt;  // none: always 1
    ScoreMod score_mod;
    // (H*D, C). The output of the heads is multiplied by the sigmoid of this projection of the
    // input: "Gated Attention for Large Language Models" (Qiu et al., 2025). none: it is not.
    std::optional<Linear> output_gate = std::nullopt;

    using Inputs = PatternAttentionInputs;
    using Cache = RollingCache;
    Cache make_cache() const;
    // With a cache, the T new tokens attend to the cached ones, too: attentions has one column
    // per entry of the cache and per new token, in that order. Throws ValueError if the shapes
    // do not match, or if the cache does not end where the position ids begin.
    AttentionLayer::Output operator()(const Tensor3& hidden_states,          // (B, T, C)
                                      const PatternAttentionInputs& inputs,  // T positions
                                      RollingCache* cache = nullptr) const;
};
// The parts of the layer that its backward pass shares. Position ids of each sequence:
IdMatrix repeat_ids(const IdVector& position_ids, std::size_t batch_size);  // (T) -> (B, T)
// The inputs of chapter 05's QK norm and RoPE, without a mask. NoPE rotates by angles of 0.
// Throws ValueError if there is no such table.
AttentionInputs rope_inputs(const PatternAttention& attention,
                            const QueriesKeysValues& projected,
                            const PatternAttentionInputs& inputs);
// QK norm and RoPE, then the temperature of the queries.
QueriesKeysValues encode_positions(const PatternAttention& attention,
                                   const QueriesKeysValues& projected,
                                   const PatternAttentionInputs& inputs);
// The output gate, if there is one, and the output projection.
Tensor3 gate_and_project(const PatternAttention& attention,
                         const Tensor3& hidden_states,  // (B, T, C): the input of the layer
                         const Tensor4& context);       // (B, H, T, D) -> (B, T, C)
// With RoPE of the first table, and a scale of 1/√D.
PatternAttention make_pattern_attention(const AttentionLayer& layer, std::size_t head_dim,
                                        const AttentionPattern& pattern);

// The pre-norm block of chapter 08 with this attention layer.
using PatternBlock = PreNormBlockWith<RMSNorm, GatedMlp, PatternAttention>;

// An empty cache that holds what a layer with this pattern needs: W tokens, a chunk, or all.
RollingCache make_rolling_cache(const AttentionPattern& pattern);

// The number of cached tokens after seq_len tokens, and the bytes of keys and values of all
// layers.
std::uint64_t num_cached_tokens(const AttentionPattern& pattern, std::uint64_t seq_len);
std::uint64_t rolling_cache_bytes(const std::vector<AttentionPattern>& patterns,  // L
                                  std::uint64_t seq_len, std::size_t num_key_value_heads,
                                  std::size_t head_dim, std::size_t bytes_per_element);

}  // namespace llm
