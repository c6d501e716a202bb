#include "chapters/20_linear_attention/demo/layer.hpp"

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/20_linear_attention/gated_convolution.hpp"
#include "chapters/20_linear_attention/linear_cost.hpp"
#include "chapters/20_linear_attention/short_convolution.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t B = 2, T = 10;
const LinearSizes sizes{128, 4, 8, 16, 16};

PatternAttentionInputs inputs_of(std::size_t seq_len, std::size_t past_len = 0) {
    return pattern_attention_inputs({}, seq_len, past_len);
}

}  // namespace

void shapes_of_a_layer(Generator& generator) {
    step("A layer of Gated DeltaNet: what is computed of 10 tokens");
    const LinearAttention layer = make_linear_attention(sizes, {}, Real(1e-6), generator);
    const Tensor3 hidden_states = randn({B, T, sizes.hidden_size}, generator);
    show("in_proj_qkv", describe(layer.in_proj_qkv));
    show_shape("conv1d", layer.conv1d);
    const Tensor3 mixed = layer.in_proj_qkv(hidden_states);
    const Tensor3 convolved =
        activate(SiLU, causal_conv1d(mixed, layer.conv1d, no_inputs(B, layer.conv1d)));
    const QueriesKeysValues heads = split_qkv(layer, convolved);
    show_shape("hidden_states", hidden_states);
    show_shape("mixed", mixed);
    show_shape("queries", heads.queries);
    show_shape("values", heads.values);
    show_shape("keys_of_length_1", normalize_and_repeat(layer, heads).keys);
    const StateGates gates = state_gates(layer, hidden_states);
    const Matrix beta = xt::view(gates.beta, 0, xt::all(), xt::all()),
                 log_decay = xt::view(gates.log_decay, 0, xt::all(), xt::all());
    show("beta", beta);
    show("log_decay", log_decay);
    LinearCache cache = layer.make_cache();
    show("hidden_states_after", layer(hidden_states, inputs_of(T), &cache).hidden_states);
    show_shape("state", cache.state);
    show_shape("conv_inputs", cache.conv_inputs);
}

void token_by_token(Generator& generator) {
    step("Token by token, with the state: the same output");
    const LinearAttention layer = make_linear_attention(sizes, {}, Real(1e-6), generator);
    const Tensor3 hidden_states = randn({B, T, sizes.hidden_size}, generator);
    const Tensor3 whole = layer(hidden_states, inputs_of(T)).hidden_states;
    LinearCache cache = layer.make_cache();
    double largest = 0;
    for (std::size_t t = 0; t < T; ++t) {
        const Tensor3 token = xt::view(hidden_states, xt::all(), xt::range(t, t + 1));
        const Tensor3 expected = xt::view(whole, xt::all(), xt::range(t, t + 1));
        const Tensor3 output = layer(token, inputs_of(1, t), &cache).hidden_states;
        largest = std::max(largest, double(largest_difference(output, expected)));
    }
    show("same_as_in_one_call", largest < 1e-5);
    show("can_go_back_to_9_tokens", cache.crop(9));
}

void kept_numbers() {
    step("What one layer keeps of a sequence: Qwen3-Next's two kinds");
    const LinearSizes linear{2048, 16, 32, 128, 128, 4};
    std::vector<TableRow> rows;
    std::vector<Line> lines = {{"full attention", {}, {}}, {"linear attention", {}, {}}};
    for (const std::uint64_t seq_len : {100, 1'000, 10'000, 100'000, 262'144}) {
        const std::uint64_t full = seq_len * 2 * 2 * 256, state = state_numbers(linear);
        rows.push_back({with_commas(seq_len), with_commas(full), with_commas(state),
                        fixed(double(full) / double(state), 1)});
        for (std::size_t i = 0; i < lines.size(); ++i) {
            lines[i].x.push_back(double(seq_len));
            lines[i].y.push_back(double(i == 0 ? full : state));
        }
    }
    show_table({"tokens", "keys and values", "state", "times as many"}, rows);
    LinePlot figure{"Numbers kept by a layer of Qwen3-Next", "tokens", "numbers", lines};
    figure.log_x = figure.log_y = true;
    plot("kept", {figure});
}

void flops_by_length() {
    step("FLOPs of one head of 128 features, in millions");
    std::vector<TableRow> rows;
    for (const std::uint64_t seq_len : {64, 256, 1'024, 4'096, 16'384}) {
        const auto millions = [](std::uint64_t flops) {
            return with_commas(std::uint64_t(double(flops) / 1e6 + 0.5));
        };
        rows.push_back({with_commas(seq_len), millions(softmax_flops(seq_len, 128)),
                        millions(recurrent_flops(seq_len, 128, 128)),
                        millions(chunked_flops(seq_len, 128, 128, 64)),
                        millions(chunked_flops(seq_len, 128, 128, seq_len))});
    }
    show_table({"tokens", "softmax", "recurrent", "chunks of 64", "parallel"}, rows);
}

void words_in_a_convolution() {
    step("A gated short convolution: one channel, the last three words");
    const GatedConvolution layer{{}, {{Real(0.25), Real(0.5), 1}}, {}, {}};
    const auto [input_gate, output_gate, value] =
        split_gates({{{0, 1, 4}, {1, 1, 2}, {0, 2, 6}, {1, 0, 8}}});
    const Tensor3 product = input_gate * value, none = no_inputs(1, layer.conv1d);
    const Tensor3 convolved = convolve_channels(layer, product, none);
    const Tensor3 output = output_gate * convolved;
    const Tensor3 columns = xt::concatenate(
        xt::xtuple(input_gate, value, product, convolved, output_gate, output), 2);
    show("words", reshape(columns, {4, 6}), {"the", "sky", "is", "blue"},
         {"input gate", "value", "product", "convolved", "output gate", "output"});
    show("kept_products", last_inputs(none, product));
}

}  // namespace llm
