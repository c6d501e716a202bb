#include "chapters/20_linear_attention/gated_convolution.hpp"

#include <cmath>

#include "chapters/20_linear_attention/short_convolution.hpp"

namespace llm {
namespace {

// Begins a cache, or checks that the new tokens follow the cached ones.
void prepare_cache(const GatedConvolution& layer, std::size_t batch_size,
                   const PatternAttentionInputs& inputs, GatedConvolutionCache& cache) {
    require(inputs.position_ids.size() > 0 &&
                inputs.position_ids(0) == static_cast<Id>(cache.seq_len),
            "gated convolution: position ids do not begin at {}, after the cached tokens",
            cache.seq_len);
    if (cache.seq_len == 0) cache.conv_inputs = no_inputs(batch_size, layer.conv1d);
}

}  // namespace

GatedConvolution make_gated_convolution(const GatedConvolutionSizes& sizes,
                                        Generator& generator) {
    const auto& [hidden_size, kernel_size, bias] = sizes;
    require(hidden_size > 0 && kernel_size > 0, "gated convolution: a size is 0");
    const Real bound = 1 / std::sqrt(static_cast<Real>(kernel_size));
    GatedConvolution layer;
    layer.conv1d = uniform({hidden_size, kernel_size}, -bound, bound, generator);
    if (bias) layer.conv1d_bias = uniform({hidden_size}, -bound, bound, generator);
    layer.in_proj = make_linear(hidden_size, 3 * hidden_size, bias, generator);
    layer.out_proj = make_linear(hidden_size, hidden_size, bias, generator);
    return layer;
}

GatesAndValues split_gates(const Tensor3& projected) {
    const std::size_t width = projected.shape(2);
    require(width % 3 == 0,
            "gated convolution: {} features are not three for each channel: input gate, output "
            "gate and value",
            width);
    const auto third = [&](std::size_t n) -> Tensor3 {
        return xt::view(projected, xt::all(), xt::all(),
                        xt::range(n * width / 3, (n + 1) * width / 3));
    };
    return {third(0), third(1), third(2)};
}

Tensor3 convolve_channels(const GatedConvolution& layer, const Tensor3& gated,
                          const Tensor3& before) {
    const Tensor3 convolved = causal_conv1d(gated, layer.conv1d, before);
    if (!layer.conv1d_bias) return convolved;
    require(layer.conv1d_bias->size() == gated.shape(2),
            "gated convolution: a bias of {} does not match a weight of {}",
            layer.conv1d_bias->shape(), layer.conv1d.shape());
    return convolved + *layer.conv1d_bias;
}

AttentionLayer::Output GatedConvolution::operator()(const Tensor3& hidden_states,
                                                    const PatternAttentionInputs& inputs,
                                                    GatedConvolutionCache* cache) const {
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    GatedConvolutionCache new_sequence;
    if (!cache) prepare_cache(*this, batch_size, Inputs::make({}, 1, seq_len), new_sequence);
    if (cache) prepare_cache(*this, batch_size, inputs, *cache);
    auto& [conv_inputs, past_len] = cache ? *cache : new_sequence;

    // Gate, mix each channel over the last J tokens, and gate again.
    const auto [input_gate, output_gate, value] = split_gates(in_proj(hidden_states));
    const Tensor3 gated = input_gate * value;  // (B, T, C)
    const Tensor3 convolved = convolve_channels(*this, gated, conv_inputs);

    // Keep what the next call needs.
    conv_inputs = last_inputs(conv_inputs, gated);
    past_len += seq_len;
    return {out_proj(output_gate * convolved), {}};
}

ForwardPass<GatedConvolutionActivations> attention_forward(
    const GatedConvolution& layer, const Tensor3& input,
    const PatternAttentionInputs& /*inputs*/, Generator* /*dropout_generator*/) {
    GatedConvolutionActivations saved{input, split_gates(layer.in_proj(input)), {}};
    saved.convolved = convolve_channels(layer, saved.parts.input_gate * saved.parts.value,
                                        no_inputs(input.shape(0), layer.conv1d));
    return {layer.out_proj(saved.parts.output_gate * saved.convolved), std::move(saved)};
}

Tensor3 attention_backward(const GatedConvolution& layer,
                           const PatternAttentionInputs& /*inputs*/,
                           const GatedConvolutionActivations& saved,
                           const Tensor3& output_gradient, GatedConvolution& gradient) {
    const auto& [input_gate, output_gate, value] = saved.parts;
    const auto [batch_size, seq_len, hidden_size] = dims(value);

    // A product passes its gradient to each factor, times the other factor.
    const Tensor3 product_gradient = linear_backward(
        layer.out_proj, output_gate * saved.convolved, output_gradient, gradient.out_proj);
    const Tensor3 output_gate_gradient = product_gradient * saved.convolved;
    const Tensor3 convolved_gradient = product_gradient * output_gate;

    // The bias of a channel is added to all tokens.
    if (layer.conv1d_bias)
        accumulate_rows(*gradient.conv1d_bias,
                        reshape(convolved_gradient, {batch_size * seq_len, hidden_size}));
    const Tensor3 gated_gradient = causal_conv1d_backward(input_gate * value, layer.conv1d,
                                                          convolved_gradient, gradient.conv1d);

    // In the order of in_proj.
    const Tensor3 input_gate_gradient = gated_gradient * value;
    const Tensor3 value_gradient = gated_gradient * input_gate;
    const Tensor3 projected_gradient = xt::concatenate(
        xt::xtuple(input_gate_gradient, output_gate_gradient, value_gradient), 2);
    return linear_backward(layer.in_proj, saved.input, projected_gradient, gradient.in_proj);
}

void add_parameters(ParameterList& list, const std::string& name, GatedConvolution& layer) {
    add_parameters(list, name + ".in_proj", layer.in_proj);
    add_parameters(list, name + ".conv1d.weight", layer.conv1d);
    if (layer.conv1d_bias) add_tensor(list, name + ".conv1d.bias", *layer.conv1d_bias);
    add_parameters(list, name + ".out_proj", layer.out_proj);
}

}  // namespace llm
