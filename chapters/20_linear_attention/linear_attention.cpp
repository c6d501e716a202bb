#include "chapters/20_linear_attention/linear_attention.hpp"

#include <cmath>

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/20_linear_attention/short_convolution.hpp"

namespace llm {
namespace {

// Some of the last axis of all tokens.
Tensor3 channels(const Tensor3& mixed, std::size_t first, std::size_t count) {
    return xt::view(mixed, xt::all(), xt::all(), xt::range(first, first + count));
}

// Mamba-2's initialization.
Decay make_decay(std::size_t hidden_size, std::size_t num_value_heads, Generator& generator) {
    Decay decay{
        make_linear(hidden_size, num_value_heads, false, generator),
        uniform({num_value_heads}, 1, 16, generator),
        uniform({num_value_heads}, std::log(Real(0.001)), std::log(Real(0.1)), generator)};
    for (Real& value : decay.A_log) value = std::log(value);
    // The inverse of softplus.
    for (Real& value : decay.dt_bias) value = std::log(std::expm1(std::exp(value)));
    return decay;
}

// Begins a cache, or checks that the new tokens follow the cached ones.
void prepare_cache(const LinearAttention& layer, std::size_t batch_size,
                   const PatternAttentionInputs& inputs, LinearCache& cache) {
    require(inputs.position_ids.size() > 0 &&
                inputs.position_ids(0) == static_cast<Id>(cache.seq_len),
            "linear attention: position ids do not begin at {}, after the cached tokens",
            cache.seq_len);
    if (cache.seq_len > 0) return;
    cache.conv_inputs = no_inputs(batch_size, layer.conv1d);
    cache.state = xt::zeros<Real>(
        {batch_size, layer.num_value_heads, layer.key_head_dim(), layer.value_head_dim()});
}

}  // namespace

Real softplus(Real x) {
    return x > 20 ? x : std::log1p(std::exp(x));  // the bound is PyTorch's
}

LinearAttention make_linear_attention(const LinearSizes& sizes, const LinearVariant& variant,
                                      Real rms_norm_eps, Generator& generator) {
    const auto& [C, Hk, Hv, Dk, Dv, J] = sizes;
    require(C > 0 && Hk > 0 && Hv > 0 && Dk > 0 && Dv > 0 && J > 0,
            "linear attention: a size is 0");
    require(Hv % Hk == 0, "linear attention: {} key heads do not divide {} value heads", Hk,
            Hv);
    const std::size_t width = 2 * Hk * Dk + Hv * Dv;
    LinearAttention layer{Hk, Hv, variant.rule, {}, {}, {}, {}, {}, {}, {}};
    layer.in_proj_qkv = make_linear(C, width, false, generator);
    layer.in_proj_z = make_linear(C, Hv * Dv, false, generator);
    if (variant.has_beta) layer.in_proj_b = make_linear(C, Hv, false, generator);
    if (variant.has_decay) layer.decay = make_decay(C, Hv, generator);
    const Real bound = 1 / std::sqrt(static_cast<Real>(J));
    layer.conv1d = uniform({width, J}, -bound, bound, generator);
    layer.norm = make_rms_norm(Dv, rms_norm_eps);
    layer.out_proj = make_linear(Hv * Dv, C, false, generator);
    return layer;
}

QueriesKeysValues split_qkv(const LinearAttention& layer, const Tensor3& mixed) {
    const std::size_t Hk = layer.num_key_heads, Hv = layer.num_value_heads;
    const std::size_t key_width = Hk * layer.key_head_dim();
    return {split_heads(channels(mixed, 0, key_width), Hk),
            split_heads(channels(mixed, key_width, key_width), Hk),
            split_heads(channels(mixed, 2 * key_width, Hv * layer.value_head_dim()), Hv)};
}

Tensor4 l2_normalize(const Tensor4& states, Real eps) {
    // The RMS is the length divided by √D.
    const Real head_dim = static_cast<Real>(states.shape(3));
    return rms_normalize(states, eps / head_dim) / std::sqrt(head_dim);
}

QueriesKeysValues normalize_and_repeat(const LinearAttention& layer,
                                       const QueriesKeysValues& heads) {
    const std::size_t num_groups = layer.num_value_heads / layer.num_key_heads;
    const Real scale = 1 / std::sqrt(static_cast<Real>(layer.key_head_dim()));
    return {repeat_kv(l2_normalize(heads.queries) * scale, num_groups),
            repeat_kv(l2_normalize(heads.keys), num_groups), heads.values};
}

StateGates state_gates(const LinearAttention& layer, const Tensor3& hidden_states) {
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    const std::size_t num_heads = layer.num_value_heads;
    StateGates gates{xt::zeros<Real>({batch_size, seq_len, num_heads}),
                     xt::ones<Real>({batch_size, seq_len, num_heads})};
    if (layer.in_proj_b) gates.beta = activate(Sigmoid, (*layer.in_proj_b)(hidden_states));
    if (!layer.decay) return gates;
    const auto& [in_proj_a, A_log, dt_bias] = *layer.decay;
    gates.log_decay = in_proj_a(hidden_states);
    for (std::size_t i = 0; i < gates.log_decay.size(); ++i) {
        Real& g = gates.log_decay.data()[i];
        const std::size_t h = i % num_heads;
        g = -std::exp(A_log(h)) * softplus(g + dt_bias(h));
    }
    return gates;
}

HeadInputs head_inputs(const QueriesKeysValues& heads, const StateGates& gates, std::size_t b,
                       std::size_t h) {
    return {head_of(heads.queries, b, h), head_of(heads.keys, b, h),
            head_of(heads.values, b, h), xt::view(gates.log_decay, b, xt::all(), h),
            xt::view(gates.beta, b, xt::all(), h)};
}

Tensor4 update_states(const LinearAttention& layer, const QueriesKeysValues& heads,
                      const StateGates& gates, Tensor4& state) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads.values);
    Tensor4 context(heads.values.shape());
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t h = 0; h < num_heads; ++h) {
            const HeadInputs tokens = head_inputs(heads, gates, b, h);
            const Matrix before = head_of(state, b, h);
            const auto [output, after] =
                seq_len == 1 ? recurrent_form(tokens, layer.rule, before)
                             : chunked_form(tokens, layer.rule, before, layer.chunk_size);
            xt::view(context, b, h, xt::all(), xt::all()) = output;
            xt::view(state, b, h, xt::all(), xt::all()) = after;
        }
    return context;
}

Tensor3 normalize_and_gate(const RMSNorm& norm, const Tensor3& context, const Tensor3& z) {
    const auto [batch_size, seq_len, width] = dims(context);
    const std::size_t head_dim = norm.weight.size();
    const Matrix normalized =
        norm(reshape(context, {context.size() / head_dim, head_dim}));  // (B*T*Hv, Dv)
    return reshape(normalized, {batch_size, seq_len, width}) * activate(SiLU, z);
}

AttentionLayer::Output LinearAttention::operator()(const Tensor3& hidden_states,
                                                   const PatternAttentionInputs& inputs,
                                                   LinearCache* cache) const {
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    LinearCache new_sequence;
    if (!cache) prepare_cache(*this, batch_size, Inputs::make({}, 1, seq_len), new_sequence);
    if (cache) prepare_cache(*this, batch_size, inputs, *cache);
    auto& [conv_inputs, state, past_len] = cache ? *cache : new_sequence;

    // Project, and mix each channel over the last J tokens.
    const Tensor3 mixed = in_proj_qkv(hidden_states);  // (B, T, Cc)
    const Tensor3 convolved = activate(SiLU, causal_conv1d(mixed, conv1d, conv_inputs));
    const QueriesKeysValues heads = normalize_and_repeat(*this, split_qkv(*this, convolved));
    const StateGates gates = state_gates(*this, hidden_states);

    // Update the states, and keep what the next call needs.
    const Tensor4 context = update_states(*this, heads, gates, state);  // (B, Hv, T, Dv)
    conv_inputs = last_inputs(conv_inputs, mixed);
    past_len += seq_len;
    return {out_proj(normalize_and_gate(norm, merge_heads(context), in_proj_z(hidden_states))),
            {}};
}

}  // namespace llm
