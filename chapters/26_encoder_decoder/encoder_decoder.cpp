#include "chapters/26_encoder_decoder/encoder_decoder.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/17_long_context/score_mod.hpp"

namespace llm {
namespace {

// The rows of the ids. T5 has no longest text.
Tensor3 embed(const Matrix& shared, const IdMatrix& input_ids) {
    check_input({.max_position_embeddings = input_ids.shape(1), .vocab_size = shared.shape(0)},
                input_ids);
    return embedding(shared, input_ids);
}

}  // namespace

std::size_t relative_position_bucket(std::int64_t distance, bool bidirectional,
                                     std::size_t num_buckets, std::size_t max_distance) {
    const std::size_t side = bidirectional ? num_buckets / 2 : num_buckets;
    const std::size_t max_exact = side / 2;
    require(num_buckets >= 4 && num_buckets % 2 == 0 && max_distance > max_exact,
            "relative positions: {} buckets do not fit distances up to {}", num_buckets,
            max_distance);
    const std::size_t first = bidirectional && distance > 0 ? side : 0;

    // A decoder masks the keys after its query; they have the bucket of distance 0.
    if (!bidirectional) distance = std::min(distance, std::int64_t{0});
    const auto d = static_cast<std::size_t>(std::abs(distance));
    if (d < max_exact) return first + d;

    // The others have equal widths in ln d. (In float, as in PyTorch: its rounding counts.)
    const auto log_of = [&](std::size_t n) { return std::log(float(n) / float(max_exact)); };
    const float part = log_of(d) / log_of(max_distance) * float(side - max_exact);
    return first + std::min(max_exact + static_cast<std::size_t>(part), side - 1);
}

Tensor4 RelativePositionBias::operator()(std::size_t query_len, std::size_t kv_len) const {
    const auto [num_buckets, num_heads] = dims(weight);
    Tensor4 bias(std::array{std::size_t{1}, num_heads, query_len, kv_len});
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = 0; s < kv_len; ++s) {
            const auto distance = std::int64_t(s + query_len) - std::int64_t(kv_len + t);
            const std::size_t bucket =
                relative_position_bucket(distance, bidirectional, num_buckets, max_distance);
            for (std::size_t h = 0; h < num_heads; ++h) bias(0, h, t, s) = weight(bucket, h);
        }
    return bias;
}

AttentionLayer::Output T5Attention::operator()(const Tensor3& hidden_states,
                                               const T5AttentionInputs& inputs,
                                               LayerCache* cache) const {
    const auto project = [&](const Linear& linear, const Tensor3& states) {
        return split_heads(linear(states), layer.num_attention_heads);
    };
    const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
    const bool is_cross = inputs.key_value_states.has_value();
    const Tensor3& states = is_cross ? *inputs.key_value_states : hidden_states;  // (B, S, C)

    // The encoder's output does not change: its keys and values are computed once.
    LayerCache own;
    LayerCache& cached = cache ? *cache : own;
    if (!is_cross || cached.keys.size() == 0)
        cached.update(project(k_proj, states), project(v_proj, states));

    // Add the bias of head h as a mask is added. A ScoreMod (chapter 17) has a scale of 1.
    const auto attend = [&](const Matrix& q, const Matrix& k, const Matrix& v,
                            const Matrix& mask, std::size_t h) {
        const auto& bias = inputs.position_bias;
        return attention(q, k, v, bias ? mask + head_of(*bias, 0, h) : mask, ScoreMod{}, h);
    };
    AttentionOutput result =
        grouped_query_attention(project(q_proj, hidden_states), cached.keys, cached.values,
                                inputs.attention_mask, attend);
    return {project_output(layer, result.context), std::move(result.weights)};
}

EncodedTexts T5Model::encode(const BatchEncoding& batch) const {
    const std::size_t S = batch.input_ids.shape(1);
    const T5AttentionInputs inputs{bidirectional_mask(batch.padding_mask), encoder_bias(S, S)};
    const DecoderOutput output =
        run_layers(encoder_layers, embed(shared, batch.input_ids), inputs);
    return {encoder_norm(output.last_hidden_state), batch.padding_mask};
}

Tensor3 T5Model::decode(const IdMatrix& decoder_input_ids, const EncodedTexts& encoded,
                        std::vector<T5DecoderCache>* caches) const {
    const auto [batch_size, len] = dims(decoder_input_ids);  // B, T
    const std::size_t kv_len = len + (caches ? caches->front().self.keys.shape(2) : 0);

    // A token sees itself and those before it, and the whole text but its padding.
    const Matrix all = xt::zeros<Real>({len, encoded.padding_mask.shape(1)});
    const Tensor4 text_mask = mask_padding(expand_mask(all, batch_size), encoded.padding_mask);
    const T5DecoderInputs inputs{
        {expand_mask(causal_mask(len, kv_len), batch_size), decoder_bias(len, kv_len)},
        {text_mask, std::nullopt, encoded.last_hidden_state}};
    const DecoderOutput output =
        run_layers(decoder_layers, embed(shared, decoder_input_ids), inputs, caches);
    return decoder_norm(output.last_hidden_state);
}

}  // namespace llm
