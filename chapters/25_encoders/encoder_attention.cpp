#include "chapters/25_encoders/encoder_attention.hpp"

#include "chapters/01_masking/masking.hpp"

namespace llm {
namespace {

// Tokens begin to end - 1 of each head.
Tensor4 slice_tokens(const Tensor4& heads, std::size_t begin, std::size_t end) {
    return xt::view(heads, xt::all(), xt::all(), xt::range(begin, end), xt::all());
}

// The attention of several texts in one row: each text attends to itself alone.
Tensor4 attend_within_texts(const QueriesKeysValues& heads, const Tensor4& longest_mask,
                            const std::vector<std::size_t>& cu_seqlens) {
    Tensor4 context(heads.queries.shape());  // (1, H, N, D)
    for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
        const std::size_t begin = cu_seqlens[i], end = cu_seqlens[i + 1], len = end - begin;
        const Tensor4 mask =  // (1, 1, n, n)
            xt::view(longest_mask, xt::all(), xt::all(), xt::range(std::size_t{0}, len),
                     xt::range(std::size_t{0}, len));
        const AttentionOutput text = grouped_query_attention(
            slice_tokens(heads.queries, begin, end), slice_tokens(heads.keys, begin, end),
            slice_tokens(heads.values, begin, end), mask);
        xt::view(context, xt::all(), xt::all(), xt::range(begin, end), xt::all()) =
            text.context;
    }
    return context;
}

void require_padded(const EncoderInputs& inputs) {
    require(inputs.cu_seqlens.empty(),
            "encoder: the backward pass takes a padded batch, not {} texts in one row",
            inputs.cu_seqlens.size() - 1);
}

}  // namespace

Tensor4 bidirectional_mask(const IdMatrix& padding_mask, std::optional<std::size_t> window) {
    const auto [batch_size, seq_len] = dims(padding_mask);
    Matrix mask = xt::zeros<Real>({seq_len, seq_len});  // (T, T)

    // Mask what is too far away: |t - s| > window. The token itself is always seen.
    if (window)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t s = 0; s < seq_len; ++s)
                if (t > s + *window || s > t + *window) mask(t, s) = -infinity;
    return mask_padding(expand_mask(mask, batch_size), padding_mask);
}

const AttentionInputs& inputs_of(const EncoderAttention& attention,
                                 const EncoderInputs& inputs) {
    if (!attention.has_window) return inputs.full;
    require(inputs.windowed.has_value(), "encoder: a layer has a window, the inputs have none");
    return *inputs.windowed;
}

AttentionLayer::Output EncoderAttention::operator()(const Tensor3& hidden_states,
                                                    const EncoderInputs& inputs,
                                                    Cache* /*cache*/) const {
    const AttentionInputs& own = inputs_of(*this, inputs);
    if (inputs.cu_seqlens.empty()) return layer(hidden_states, own);

    // Project and rotate all tokens at once. Only attention has to know the texts.
    const QueriesKeysValues heads =
        apply_qk_norm_and_rope(layer.qk_norm, project_qkv(layer, hidden_states), own);
    const Tensor4 context = attend_within_texts(heads, own.attention_mask, inputs.cu_seqlens);
    return {project_output(layer, context), {}};
}

ForwardPass<AttentionActivations> attention_forward(const EncoderAttention& attention,
                                                    const Tensor3& input,
                                                    const EncoderInputs& inputs,
                                                    Generator* dropout_generator) {
    require_padded(inputs);
    return attention_forward(attention.layer, input, inputs_of(attention, inputs),
                             dropout_generator);
}

Tensor3 attention_backward(const EncoderAttention& attention, const EncoderInputs& inputs,
                           const AttentionActivations& saved, const Tensor3& output_gradient,
                           EncoderAttention& gradient) {
    return attention_backward(attention.layer, inputs_of(attention, inputs), saved,
                              output_gradient, gradient.layer);
}

void add_parameters(ParameterList& list, const std::string& name, EncoderAttention& attention) {
    add_parameters(list, name, attention.layer);
}

}  // namespace llm
