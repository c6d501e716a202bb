// Chapter 09, file 2 of 5 — What is a whole model?
#pragma once

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "chapters/09_full_model/run_layers.hpp"

namespace llm {

// The configuration of Mini-LLM, a small open model of the Llama architecture.
Config mini_llm_config();

// Checks all sizes of a model, and sets head_dim if it is 0. Throws ValueError if another size
// is 0, if sizes are inconsistent, or if head_dim is odd.
Config validate_model(Config config);

// Throws ValueError if there are no ids, if an id lies outside the vocabulary, or if a sequence
// is longer than max_position_embeddings.
void check_input(const Config& config, const IdMatrix& input_ids);  // (B, T)

// The rows of the ids. The ids must be in the vocabulary. Source:
// torch.nn.functional.embedding.
Tensor3 embedding(const Matrix& weight,        // (V, C)
                  const IdMatrix& input_ids);  // (B, T) -> (B, T, C)

// Adds row past_len + t of the learned position embeddings to the embedding of token t. Throws
// ValueError if the shapes do not match, or if there is no such row. Source: GPT-2, wpe.
Tensor3 add_positions(const Tensor3& embeddings,      // (B, T, C)
                      const Matrix& embed_positions,  // (P, C)
                      std::size_t past_len = 0);      // -> (B, T, C)

// The logits of normalized hidden states: a linear layer without bias, whose weight is not
// copied.
Tensor3 lm_head(const Matrix& weight,           // (V, C)
                const Tensor3& hidden_states);  // (B, T, C) -> (B, T, V)

// Keeps logits between -cap and cap, smoothly: cap · tanh(logits / cap). Throws ValueError
// unless cap > 0. Source: "Gemma 2" (2024), section 2, which caps the logits at 30.
Matrix logit_softcap(const Matrix& logits, Real cap);    // (N, V) -> (N, V)
Tensor3 logit_softcap(const Tensor3& logits, Real cap);  // (B, T, V) -> (B, T, V)

// The KV cache of a model: one cache per layer, and the rotary tables of its P positions.
template <class AnyLayerCache>
struct ModelCache {
    std::vector<RotaryTable> rotary_tables;  // (P, D/2) each
    std::vector<AnyLayerCache> layers;       // L
    std::size_t seq_len = 0;                 // S: the number of cached tokens
};
using KVCache = ModelCache<LayerCache>;

// The positions whose logits are computed; generation needs the last one alone.
// Source: Hugging Face, logits_to_keep.
enum class LogitsToKeep { all, last };

// The optional inputs of a forward pass, and what it returns.
template <class AnyLayerCache>
struct ForwardOptionsWith {
    ModelCache<AnyLayerCache>* cache = nullptr;  // the new tokens attend to it and are appended
    LogitsToKeep logits_to_keep = LogitsToKeep::all;
    bool output_hidden_states = false;
    bool output_attentions = false;
};
using ForwardOptions = ForwardOptionsWith<LayerCache>;
// Source: Hugging Face, CausalLMOutputWithPast.
struct ModelOutput {
    Tensor3 logits;                      // (B, T, V), or (B, 1, V) of the last position
    std::vector<Tensor3> hidden_states;  // L + 1 times (B, T, C), or empty
    std::vector<Tensor4> attentions;     // L times (B, H, T, S), or empty
};

// The rotary tables for P positions that a model with this configuration makes: one. Throws
// ValueError if P exceeds max_position_embeddings.
std::vector<RotaryTable> rotary_tables(const Config& config, std::size_t num_positions);  // P

// A decoder-only transformer: from token ids to logits. A later architecture passes another
// layer type, and perhaps a configuration with more settings or another final norm. Source:
// Llama 2 (Touvron et al., 2023).
template <class Layer, class AnyConfig = Config, class FinalNorm = RMSNorm>
struct DecoderModel {
    AnyConfig config;
    Matrix embed_tokens;            // (V, C): one row per token of the vocabulary
    std::vector<Layer> layers;      // L
    FinalNorm norm;                 // (C)
    std::optional<Matrix> lm_head;  // (V, C); none if tied to embed_tokens
    // Neutral here; other architectures set them.
    Real embedding_scale = 1;  // multiplies the embeddings
    std::optional<Real> final_logit_softcapping = std::nullopt;
    Real logits_scaling = 1;                               // divides the logits
    std::optional<Matrix> embed_positions = std::nullopt;  // (P, C), instead of RoPE

    const Matrix& head() const { return lm_head ? *lm_head : embed_tokens; }  // (V, C)

    // The logits of the next token at each position. All functions that take ids throw
    // ValueError as check_input() does, or if a cache has too few positions, and then leave the
    // cache unchanged.
    using Attention = typename Layer::AttentionType;
    using Cache = typename Attention::Cache;
    Tensor3 operator()(const IdMatrix& input_ids) const {  // (B, T) -> (B, T, V)
        return forward(input_ids, {}).logits;
    }
    ModelOutput forward(const IdMatrix& input_ids,  // (B, T)
                        const ForwardOptionsWith<Cache>& options) const;

    // The steps of forward(), in this order; run_layers is the step between the last two.
    Tensor3 embed(const IdMatrix& input_ids,                     // (B, T) -> (B, T, C)
                  std::size_t past_len = 0) const;               // cached tokens before them
    RotaryTable rotary_table(std::size_t num_positions) const {  // P; the first one
        return rotary_tables(config, num_positions).front();
    }
    Tensor3 logits(const Tensor3& hidden_states) const;    // (B, T, C) -> (B, T, V)
    Tensor3 head_logits(const Tensor3& normalized) const;  // the same, after the final norm
};
using Model = DecoderModel<PreNormBlock>;

template <class Layer, class AnyConfig, class FinalNorm>
Tensor3 DecoderModel<Layer, AnyConfig, FinalNorm>::embed(const IdMatrix& input_ids,
                                                         std::size_t past_len) const {
    check_input(config, input_ids);
    Tensor3 embeddings = embedding(embed_tokens, input_ids);
    if (embedding_scale != 1) embeddings = embeddings * embedding_scale;
    if (embed_positions) embeddings = add_positions(embeddings, *embed_positions, past_len);
    return embeddings;
}

template <class Layer, class AnyConfig, class FinalNorm>
Tensor3 DecoderModel<Layer, AnyConfig, FinalNorm>::logits(const Tensor3& hidden_states) const {
    const Tensor3 normalized = norm(hidden_states);  // (B, T, C)
    return head_logits(normalized);
}

template <class Layer, class AnyConfig, class FinalNorm>
Tensor3 DecoderModel<Layer, AnyConfig, FinalNorm>::head_logits(
    const Tensor3& normalized) const {
    Tensor3 result = llm::lm_head(head(), normalized);  // (B, T, V)
    if (logits_scaling != 1) result = result / logits_scaling;
    if (final_logit_softcapping) result = logit_softcap(result, *final_logit_softcapping);
    return result;
}

// The hidden states of the last position of each sequence.
Tensor3 last_position(const Tensor3& hidden_states);  // (B, T, C) -> (B, 1, C)

template <class Layer, class AnyConfig, class FinalNorm>
ModelOutput DecoderModel<Layer, AnyConfig, FinalNorm>::forward(
    const IdMatrix& input_ids, const ForwardOptionsWith<Cache>& options) const {
    const auto [batch_size, seq_len] = dims(input_ids);
    ModelCache<Cache>* const cache = options.cache;

    // Embed the tokens. Learned positions, as in GPT-2, continue after those of the cache.
    const Tensor3 embeddings = embed(input_ids, cache ? cache->seq_len : 0);  // (B, T, C)
    using Inputs = typename Attention::Inputs;
    const Inputs inputs =
        cache ? Inputs::make(cache->rotary_tables, batch_size, seq_len, cache->seq_len)
              : Inputs::make(rotary_tables(config, seq_len), batch_size, seq_len);

    // Apply all layers to the embeddings.
    DecoderOutput decoder =
        run_layers(layers, embeddings, inputs, cache ? &cache->layers : nullptr,
                   {options.output_hidden_states, options.output_attentions});
    if (cache) cache->seq_len += seq_len;

    // Project the final hidden states to one logit per token of the vocabulary.
    const Tensor3& last = decoder.last_hidden_state;
    return {logits(options.logits_to_keep == LogitsToKeep::last ? last_position(last) : last),
            std::move(decoder.hidden_states), std::move(decoder.attentions)};
}
extern template struct DecoderModel<PreNormBlock>;

// The same model with other layers: make_layer of each.
template <class Layer, class AnyConfig, class FinalNorm, class MakeLayer>
auto with_layers(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                 const MakeLayer& make_layer) {
    using NewLayer = std::invoke_result_t<MakeLayer, const Layer&>;
    DecoderModel<NewLayer, AnyConfig, FinalNorm> result{
        .config = model.config,
        .embed_tokens = model.embed_tokens,
        .layers = {},
        .norm = model.norm,
        .lm_head = model.lm_head,
        .embedding_scale = model.embedding_scale,
        .final_logit_softcapping = model.final_logit_softcapping,
        .logits_scaling = model.logits_scaling,
        .embed_positions = model.embed_positions};
    for (const Layer& layer : model.layers) result.layers.push_back(make_layer(layer));
    return result;
}

// An empty cache for P positions. Throws ValueError if P exceeds max_position_embeddings.
template <class Layer>
auto make_layer_cache(const Layer& layer) {
    return layer.self_attn.make_cache();
}
template <class Layer, class AnyConfig, class FinalNorm>
auto make_cache(const DecoderModel<Layer, AnyConfig, FinalNorm>& model,
                std::size_t num_positions) {
    ModelCache<typename Layer::AttentionType::Cache> cache{
        rotary_tables(model.config, num_positions), {}};
    for (const Layer& layer : model.layers) cache.layers.push_back(make_layer_cache(layer));
    return cache;
}

// Initializes all weights with PyTorch's defaults, in Mini-LLM's order: embed_tokens, normal
// with standard deviation 1; q, k, v, o, gate, down and up of each layer; lm_head, which a tied
// model discards. The layout is that of the initialized q_proj and k_proj; interleaved ones are
// converted, because a model always uses split halves. Throws ValueError as validate_model()
// does.
Model make_model(const Config& config, Generator& generator,
                 RopeLayout layout = RopeLayout::split_half);

// Reinitializes every matrix, in the same order, from a normal distribution with mean 0.
// Hugging Face's Llama uses a standard deviation of 0.02, initializer_range. Source:
// torch.nn.init.normal_.
void init_normal(Model& model, Real standard_deviation, Generator& generator);

}  // namespace llm
