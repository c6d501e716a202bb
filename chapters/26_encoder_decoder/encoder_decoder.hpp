// Chapter 26, file 1 of 2 — How does a model write about what it has read? An encoder, and a
// decoder that attends to its output: T5.
#pragma once

#include "chapters/11_generation/cached_sequence.hpp"
#include "chapters/25_encoders/encoder.hpp"

namespace llm {

// The bucket of a key at distance s - t from its query. Half of an encoder's buckets are for
// keys after the query. Of those for one side, the first half have one distance each; the
// others grow with the distance, up to max_distance. Throws ValueError if num_buckets is odd,
// too small or too large. Source: Hugging Face, modeling_t5.py, _relative_position_bucket.
std::size_t relative_position_bucket(std::int64_t distance, bool bidirectional,
                                     std::size_t num_buckets = 32,
                                     std::size_t max_distance = 128);

// What T5 has instead of positions: a learned number for each bucket and head, added to the
// scores. All layers of a stack share one. Source: Raffel et al., 2020, section 2.1.
struct RelativePositionBias {
    Matrix weight;  // (num_buckets, H)
    bool bidirectional = true;
    std::size_t max_distance = 128;
    // The T queries have the last T of S positions.
    Tensor4 operator()(std::size_t query_len, std::size_t kv_len) const;  // -> (1, H, T, S)
};

// The attention layer of chapter 05 without a division by √D and without RoPE. Source:
// modeling_t5.py, T5Attention.
struct T5AttentionInputs {
    Tensor4 attention_mask;                                  // (B, 1, T, S), 0 or -inf
    std::optional<Tensor4> position_bias = std::nullopt;     // (1, H, T, S)
    std::optional<Tensor3> key_value_states = std::nullopt;  // (B, S, C) of cross-attention
};
struct T5Attention {
    AttentionLayer layer;

    using Inputs = T5AttentionInputs;
    using Cache = LayerCache;
    // Self-attention appends the keys and values of T tokens to the cache. Cross-attention
    // computes those of the encoder's output once, for the first token, and then finds them.
    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T, C)
                                      const Inputs& inputs, LayerCache* cache = nullptr) const;
};

// Up, ReLU, down in T5; gated, with GELUTanh, in T5 1.1.
struct T5Mlp {
    std::variant<Mlp, GatedMlp> mlp;
    Tensor3 operator()(const Tensor3& hidden_states) const {  // (B, T, C) -> (B, T, C)
        return std::visit([&](const auto& any) { return any(hidden_states); }, mlp);
    }
};

// The encoder's block is chapter 08's. The decoder's has a third sublayer between the two.
using T5EncoderBlock = PreNormBlockWith<RMSNorm, T5Mlp, T5Attention>;
struct T5DecoderInputs {
    T5AttentionInputs self, cross;
};
struct T5DecoderCache {
    LayerCache self, cross;
};
struct T5DecoderBlock {
    T5Attention self_attn, cross_attn;
    T5Mlp mlp;
    RMSNorm attention_norm, cross_attention_norm, ffn_norm;

    BlockOutput operator()(const Tensor3& hidden_states,  // (B, T, C)
                           const T5DecoderInputs& inputs,
                           T5DecoderCache* cache = nullptr) const {
        auto self = self_attn(attention_norm(hidden_states), inputs.self,
                              cache ? &cache->self : nullptr);
        Tensor3 x = hidden_states + self.hidden_states;  // (B, T, C)
        auto cross =
            cross_attn(cross_attention_norm(x), inputs.cross, cache ? &cache->cross : nullptr);
        x = x + cross.hidden_states;
        return {x + mlp(ffn_norm(x)), std::move(self.attentions)};
    }
};

// What the decoder attends to.
struct EncodedTexts {
    Tensor3 last_hidden_state;  // (B, S, C), after the final norm
    IdMatrix padding_mask;      // (B, S), 1 for a token, 0 for padding
};

// Both stacks. The functions throw ValueError for an id that is not in the vocabulary.
struct T5Model {
    Matrix shared;  // (V, C): the embeddings of both stacks
    RelativePositionBias encoder_bias, decoder_bias;
    std::vector<T5EncoderBlock> encoder_layers;
    std::vector<T5DecoderBlock> decoder_layers;
    RMSNorm encoder_norm, decoder_norm;  // after the last layers
    std::optional<Matrix> lm_head;       // (V, C); none: shared
    bool scale_decoder_outputs = true;   // by 1/√C before the head: if it is shared

    EncodedTexts encode(const BatchEncoding& batch) const;
    // (B, T) -> (B, T, C). With caches, one a layer, the T tokens follow the cached ones.
    Tensor3 decode(const IdMatrix& decoder_input_ids, const EncodedTexts& encoded,
                   std::vector<T5DecoderCache>* caches = nullptr) const;
    Tensor3 logits(const Tensor3& decoded) const {  // (B, T, C) -> (B, T, V)
        const Real root = std::sqrt(static_cast<Real>(decoded.shape(2)));  // √C
        return llm::lm_head(lm_head ? *lm_head : shared,
                            scale_decoder_outputs ? decoded / root : decoded);
    }
};

// What the decoder writes for one text, in a CachedSequence for generate() of chapter 11, whose
// prompt is then decoder_start_token_id. The model must outlive it.
struct T5Sequence final : SequenceCache {
    const T5Model& model;
    const EncodedTexts encoded;
    std::vector<T5DecoderCache> caches{model.decoder_layers.size()};

    T5Sequence(const T5Model& t5, const EncodedTexts& text) : model(t5), encoded(text) {}
    Vector append(std::span<const Id> new_ids) override {
        const Tensor3 decoded = model.decode(one_sequence(new_ids), encoded, &caches);
        return last_logits({model.logits(last_position(decoded)), {}, {}});
    }
    std::size_t crop(std::size_t count) override {  // the cross-attention's keys stay
        for (T5DecoderCache& cache : caches) cache.self.crop(count);
        return count;
    }
};

}  // namespace llm
