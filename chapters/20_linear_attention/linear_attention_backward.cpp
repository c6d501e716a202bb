#include "chapters/20_linear_attention/linear_attention_backward.hpp"

#include <cmath>

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "chapters/20_linear_attention/recurrence_backward.hpp"
#include "chapters/20_linear_attention/short_convolution.hpp"

namespace llm {
namespace {

// One row for each head of each token.
Matrix head_rows(const Tensor3& states, std::size_t head_dim) {  // (B, T, H*D) -> (B*T*H, D)
    return reshape(states, {states.size() / head_dim, head_dim});
}

// Backward pass of l2_normalize: the derivative of x / |x|, through the RMS.
Tensor4 l2_normalize_backward(const Tensor4& input, const Tensor4& output_gradient,
                              Real eps = Real(1e-6)) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(input);
    const Real D = static_cast<Real>(head_dim);
    const Matrix gradient = rms_normalize_backward(
        reshape(input, {input.size() / head_dim, head_dim}),
        reshape(output_gradient, {input.size() / head_dim, head_dim}), eps / D);
    return reshape(gradient / std::sqrt(D), {batch_size, num_heads, seq_len, head_dim});
}

// Backward pass of repeat_kv: adjacent heads were one.
Tensor4 repeat_backward(const Tensor4& output_gradient, std::size_t num_groups) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(output_gradient);
    Tensor4 sums = xt::zeros<Real>({batch_size, num_heads / num_groups, seq_len, head_dim});
    for (std::size_t h = 0; h < num_heads; ++h)
        xt::view(sums, xt::all(), h / num_groups, xt::all(), xt::all()) +=
            xt::view(output_gradient, xt::all(), h, xt::all(), xt::all());
    return sums;
}

// Backward pass of normalize_and_repeat.
QueriesKeysValues normalize_and_repeat_backward(const LinearAttention& layer,
                                                const QueriesKeysValues& heads,
                                                const QueriesKeysValues& output_gradient) {
    const std::size_t num_groups = layer.num_value_heads / layer.num_key_heads;
    const Real scale = 1 / std::sqrt(static_cast<Real>(layer.key_head_dim()));
    return {
        l2_normalize_backward(heads.queries,
                              repeat_backward(output_gradient.queries, num_groups) * scale),
        l2_normalize_backward(heads.keys, repeat_backward(output_gradient.keys, num_groups)),
        output_gradient.values};
}

// The gradients of all heads, with respect to queries, keys and values, and to the gates.
struct StatesGradient {
    QueriesKeysValues heads;  // (B, Hv, T, D)
    StateGates gates;
};
StatesGradient states_backward(const LinearAttention& layer, const LinearActivations& saved,
                               const Tensor4& context_gradient) {  // (B, Hv, T, Dv)
    const QueriesKeysValues heads = normalize_and_repeat(layer, saved.heads);
    StatesGradient gradient{heads, saved.gates};  // overwritten
    const Matrix zero = xt::zeros<Real>({layer.key_head_dim(), layer.value_head_dim()});
    for (std::size_t b = 0; b < heads.values.shape(0); ++b)
        for (std::size_t h = 0; h < layer.num_value_heads; ++h) {
            const HeadInputs of_head =
                chunked_form_backward(head_inputs(heads, saved.gates, b, h), layer.rule, zero,
                                      head_of(context_gradient, b, h), zero,
                                      LinearAttention::chunk_size)
                    .inputs;
            const auto set = [&](Tensor4& states, const Matrix& head) {
                xt::view(states, b, h, xt::all(), xt::all()) = head;
            };
            set(gradient.heads.queries, of_head.queries);
            set(gradient.heads.keys, of_head.keys);
            set(gradient.heads.values, of_head.values);
            xt::view(gradient.gates.log_decay, b, xt::all(), h) = of_head.log_decay;
            xt::view(gradient.gates.beta, b, xt::all(), h) = of_head.beta;
        }
    return gradient;
}

// Backward pass of state_gates. Returns the gradient with respect to the input.
Tensor3 state_gates_backward(const LinearAttention& layer, const LinearActivations& saved,
                             const StateGates& output_gradient, LinearAttention& gradient) {
    Tensor3 input_gradient = xt::zeros<Real>(saved.input.shape());
    if (layer.in_proj_b) {
        const Tensor3& beta = saved.gates.beta;  // sigmoid(b): its derivative is β (1 - β)
        const Tensor3 b_gradient = output_gradient.beta * beta * (beta * Real(-1) + Real(1));
        input_gradient =
            linear_backward(*layer.in_proj_b, saved.input, b_gradient, *gradient.in_proj_b);
    }
    if (!layer.decay) return input_gradient;
    // g = -e^A_log softplus(a + dt_bias): linear in e^A_log; softplus' is sigmoid.
    const auto& [in_proj_a, A_log, dt_bias] = *layer.decay;
    Tensor3 a_gradient = in_proj_a(saved.input);  // a, then its gradient
    for (std::size_t i = 0; i < a_gradient.size(); ++i) {
        const std::size_t h = i % layer.num_value_heads;
        const Real upstream = output_gradient.log_decay.data()[i];
        Real& a = a_gradient.data()[i];
        gradient.decay->A_log(h) += upstream * saved.gates.log_decay.data()[i];
        a = -upstream * std::exp(A_log(h)) * sigmoid(a + dt_bias(h));
        gradient.decay->dt_bias(h) += a;
    }
    return input_gradient +
           linear_backward(in_proj_a, saved.input, a_gradient, gradient.decay->in_proj_a);
}

// Backward pass of normalize_and_gate: the gradients of the context and of z.
struct GatedNormGradient {
    Tensor3 context, z;  // (B, T, Hv*Dv)
};
GatedNormGradient normalize_and_gate_backward(const RMSNorm& norm,
                                              const LinearActivations& saved,
                                              const Tensor3& output_gradient,
                                              RMSNorm& gradient) {
    const auto [batch_size, seq_len, width] = dims(saved.context);
    const std::size_t head_dim = norm.weight.size();
    const Matrix rows = head_rows(saved.context, head_dim);
    const Tensor3 normalized = reshape(norm(rows), {batch_size, seq_len, width});
    const Matrix context_gradient = norm_backward(
        norm, rows, head_rows(output_gradient * activate(SiLU, saved.z), head_dim), gradient);
    return {reshape(context_gradient, {batch_size, seq_len, width}),
            output_gradient * normalized * activation_derivative(SiLU, saved.z)};
}

}  // namespace

ForwardPass<LinearActivations> attention_forward(const LinearAttention& layer,
                                                 const Tensor3& input,
                                                 const PatternAttentionInputs& /*inputs*/,
                                                 Generator* /*dropout_generator*/) {
    LinearActivations saved;
    saved.input = input;
    saved.mixed = layer.in_proj_qkv(input);
    saved.convolved =
        causal_conv1d(saved.mixed, layer.conv1d, no_inputs(input.shape(0), layer.conv1d));
    saved.heads = split_qkv(layer, activate(SiLU, saved.convolved));
    saved.gates = state_gates(layer, input);

    Tensor4 state = xt::zeros<Real>(
        {input.shape(0), layer.num_value_heads, layer.key_head_dim(), layer.value_head_dim()});
    saved.context = merge_heads(
        update_states(layer, normalize_and_repeat(layer, saved.heads), saved.gates, state));
    saved.z = layer.in_proj_z(input);
    return {layer.out_proj(normalize_and_gate(layer.norm, saved.context, saved.z)),
            std::move(saved)};
}

Tensor3 attention_backward(const LinearAttention& layer,
                           const PatternAttentionInputs& /*inputs*/,
                           const LinearActivations& saved, const Tensor3& output_gradient,
                           LinearAttention& gradient) {
    // The forward pass in reverse: output projection, norm and gate, states, convolution.
    const Tensor3 gated_gradient =
        linear_backward(layer.out_proj, normalize_and_gate(layer.norm, saved.context, saved.z),
                        output_gradient, gradient.out_proj);
    const auto [context_gradient, z_gradient] =
        normalize_and_gate_backward(layer.norm, saved, gated_gradient, gradient.norm);
    const StatesGradient states_gradient =
        states_backward(layer, saved, split_heads(context_gradient, layer.num_value_heads));
    const QueriesKeysValues heads_gradient =
        normalize_and_repeat_backward(layer, saved.heads, states_gradient.heads);
    const Tensor3 keys_and_queries = xt::concatenate(
        xt::xtuple(merge_heads(heads_gradient.queries), merge_heads(heads_gradient.keys)), 2);
    const Tensor3 activated_gradient =
        xt::concatenate(xt::xtuple(keys_and_queries, merge_heads(heads_gradient.values)), 2);
    const Tensor3 mixed_gradient = causal_conv1d_backward(
        saved.mixed, layer.conv1d,
        activated_gradient * activation_derivative(SiLU, saved.convolved), gradient.conv1d);

    // All projections read the same input: their gradients add up.
    const Tensor3 from_qkv =
        linear_backward(layer.in_proj_qkv, saved.input, mixed_gradient, gradient.in_proj_qkv);
    const Tensor3 from_z =
        linear_backward(layer.in_proj_z, saved.input, z_gradient, gradient.in_proj_z);
    return from_qkv + from_z +
           state_gates_backward(layer, saved, states_gradient.gates, gradient);
}

void add_parameters(ParameterList& list, const std::string& name, LinearAttention& layer) {
    const auto vector = [&](const std::string& part, Vector& values) {
        list.push_back({name + part, {values.size()}, {values.data(), values.size()}});
    };
    add_parameters(list, name + ".in_proj_qkv", layer.in_proj_qkv);
    add_parameters(list, name + ".in_proj_z", layer.in_proj_z);
    if (layer.in_proj_b) add_parameters(list, name + ".in_proj_b", *layer.in_proj_b);
    if (layer.decay) {
        add_parameters(list, name + ".in_proj_a", layer.decay->in_proj_a);
        vector(".A_log", layer.decay->A_log);
        vector(".dt_bias", layer.decay->dt_bias);
    }
    add_parameters(list, name + ".conv1d.weight", layer.conv1d);
    add_parameters(list, name + ".norm", layer.norm);
    add_parameters(list, name + ".out_proj", layer.out_proj);
}

}  // namespace llm
