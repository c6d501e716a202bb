// The gated short convolution: against loops, against PyTorch, its cache, and models that have
// it.
#include "chapters/20_linear_attention/gated_convolution.hpp"
#include "chapters/20_linear_attention/linear_attention.hpp"
#include "chapters/20_linear_attention/recurrence.hpp"
#include "chapters/20_linear_attention/short_convolution.hpp"
#include "tests/support/check.hpp"

// (Test files of a chapter may be compiled together: the same names mean other things there.)
namespace llm::gated_convolution_tests {
namespace {

constexpr std::size_t B = 2, T = 9, C = 20, J = 3;

template <std::size_t N>
xt::xtensor<Real, N> part(const std::string& name) {
    return fixture<N>("20_linear_attention/convolution_" + name);
}

// PyTorch's with seed 21.
GatedConvolution layer_of_fixtures() {
    Generator generator(21);
    return make_gated_convolution({C, J, true}, generator);
}

PatternAttentionInputs inputs_of(std::size_t seq_len, std::size_t past_len = 0) {
    return pattern_attention_inputs({}, seq_len, past_len);
}

Tensor3 tokens(const Tensor3& states, std::size_t first, std::size_t last) {
    return xt::view(states, xt::all(), xt::range(first, last), xt::all());
}

// All parameters, one after the other.
Vector flat_parameters(GatedConvolution& layer) {
    ParameterList list;
    add_parameters(list, "", layer);
    std::vector<Real> values;
    for (const Parameter& parameter : list)
        values.insert(values.end(), parameter.values.begin(), parameter.values.end());
    Vector result = xt::zeros<Real>({values.size()});
    std::copy(values.begin(), values.end(), result.begin());
    return result;
}

}  // namespace

TEST_CASE("A gated short convolution, written as loops") {
    Generator generator(1);
    const std::size_t width = 5, kernel_size = 4;
    for (const bool bias : {false, true}) {
        const GatedConvolution layer =
            make_gated_convolution({width, kernel_size, bias}, generator);
        const Tensor3 input = randn({B, 6, width}, generator);
        const Tensor3 output = layer(input, inputs_of(6)).hidden_states;
        const auto projected = [&](std::size_t b, std::size_t t, std::size_t row) {
            double sum = bias ? double((*layer.in_proj.bias)(row)) : 0;
            for (std::size_t i = 0; i < width; ++i)
                sum += double(layer.in_proj.weight(row, i)) * double(input(b, t, i));
            return sum;
        };
        for (const auto& [b, t, out] : every_index(B, 6, width)) {
            double expected = bias ? double((*layer.out_proj.bias)(out)) : 0;
            for (std::size_t c = 0; c < width; ++c) {
                double mixed = bias ? double((*layer.conv1d_bias)(c)) : 0;
                for (std::size_t back = 0; back < kernel_size && back <= t; ++back)
                    mixed += double(layer.conv1d(c, kernel_size - 1 - back)) *
                             projected(b, t - back, c) * projected(b, t - back, 2 * width + c);
                expected +=
                    double(layer.out_proj.weight(out, c)) * projected(b, t, width + c) * mixed;
            }
            CHECK(double(output(b, t, out)) == doctest::Approx(expected).epsilon(1e-4));
        }
    }
}

TEST_CASE("A gated short convolution and its gradients equal PyTorch's, from the same seed") {
    GatedConvolution layer = layer_of_fixtures();
    CHECK_CLOSE(flat_parameters(layer), part<1>("parameters"), 1e-6);
    const Tensor3 input = part<3>("input");
    const AttentionLayer::Output output = layer(input, inputs_of(T));
    CHECK_CLOSE(output.hidden_states, part<3>("output"), 1e-5);
    CHECK(output.attentions.size() == 0);

    const auto [forward, saved] = attention_forward(layer, input, inputs_of(T));
    CHECK_CLOSE(forward, output.hidden_states, 0);
    GatedConvolution gradient = layer;
    ParameterList list;
    add_parameters(list, "self_attn", gradient);
    CHECK(list.size() == 6);
    CHECK(list[0].name == "self_attn.in_proj.weight");
    CHECK(list[2].name == "self_attn.conv1d.weight");
    CHECK(list[3].name == "self_attn.conv1d.bias");
    for (const Parameter& parameter : list)
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
    const Tensor3 input_gradient =
        attention_backward(layer, inputs_of(T), saved, part<3>("upstream"), gradient);
    CHECK_CLOSE(input_gradient, part<3>("input_gradient"), 1e-5);
    CHECK_CLOSE(flat_parameters(gradient), part<1>("gradients"), 1e-5);
}

TEST_CASE(
    "A convolution's cache that is filled in random pieces gives the output of one call") {
    const GatedConvolution layer = layer_of_fixtures();
    const Tensor3 input = part<3>("input");
    const Tensor3 expected = layer(input, inputs_of(T)).hidden_states;
    Generator generator(2);
    for (int trial = 0; trial < 100; ++trial) {
        GatedConvolutionCache cache = layer.make_cache();
        for (std::size_t past_len = 0, count = 0; past_len < T; past_len += count) {
            // Often fewer tokens than the convolution sees.
            const Real draw = generator.next_uniform();
            count = draw < Real(0.5) ? 1 : 1 + std::size_t(draw * Real(T - past_len - 1));
            const Tensor3 output = layer(tokens(input, past_len, past_len + count),
                                         inputs_of(count, past_len), &cache)
                                       .hidden_states;
            CHECK_CLOSE(output, tokens(expected, past_len, past_len + count), 1e-5);
            CHECK(cache.seq_len == past_len + count);
            CHECK(cache.conv_inputs.shape() == std::array{B, J - 1, C});
        }
        // It cannot go back, and says so.
        CHECK(cache.crop(T));
        CHECK_FALSE(cache.crop(T - 1));
        CHECK_FALSE(cache.crop(T + 1));
        CHECK(cache.seq_len == T);
    }
    CHECK(layer.make_cache().crop(0));
}

TEST_CASE("A gated short convolution sees J tokens: itself and J - 1 before it") {
    const GatedConvolution layer = layer_of_fixtures();
    Tensor3 input = part<3>("input");
    const Tensor3 before = layer(input, inputs_of(T)).hidden_states;
    xt::view(input, xt::all(), 4, xt::all()) = Real(7);
    const Tensor3 after = layer(input, inputs_of(T)).hidden_states;
    for (std::size_t t = 0; t < T; ++t) {
        CAPTURE(t);
        const Tensor3 change = tokens(after, t, t + 1) - tokens(before, t, t + 1);
        const bool changed = std::any_of(change.begin(), change.end(),
                                         [](Real difference) { return difference != 0; });
        CHECK(changed == (t >= 4 && t < 4 + J));
    }
}

TEST_CASE(
    "With weights of 1 for all tokens, it is linear attention with heads of one feature") {
    // Each channel of each sequence is a head: input gate, output gate and value are its key,
    // query and value. A state adds the products of all tokens, the convolution those of J.
    const std::size_t seq_len = 6, width = 4;
    Generator generator(3);
    GatedConvolution layer = make_gated_convolution({width, seq_len, false}, generator);
    layer.conv1d.fill(1);
    const Tensor3 input = randn({1, seq_len, width}, generator);
    const auto [output, saved] = attention_forward(layer, input, inputs_of(seq_len));
    const auto column = [&](const Tensor3& states, std::size_t c) -> Matrix {
        return xt::view(states, 0, xt::all(), xt::range(c, c + 1));
    };
    for (std::size_t c = 0; c < width; ++c) {
        const auto& [key, query, value] = saved.parts;
        const HeadOutput head =
            recurrent_form({column(query, c), column(key, c), column(value, c),
                            xt::zeros<Real>({seq_len}), xt::ones<Real>({seq_len})},
                           UpdateRule::additive, xt::zeros<Real>({1, 1}));
        CHECK_CLOSE(column(query * saved.convolved, c), head.output, 1e-5);
    }
}

TEST_CASE(
    "A gated convolution names shapes that do not match, and positions that do not follow") {
    Generator generator(4);
    for (const GatedConvolutionSizes& sizes :
         {GatedConvolutionSizes{0, 3}, GatedConvolutionSizes{4, 0}})
        CHECK_THROWS_WITH(make_gated_convolution(sizes, generator),
                          "gated convolution: a size is 0");
    CHECK_NOTHROW(make_gated_convolution({1, 1}, generator));
    const GatedConvolution layer = layer_of_fixtures();
    const Tensor3 input = part<3>("input");
    CHECK_THROWS_WITH(split_gates(xt::zeros<Real>({1, 2, 7})),
                      "gated convolution: 7 features are not three for each channel: input "
                      "gate, output gate and value");
    GatedConvolution other = layer;
    other.conv1d_bias = xt::ones<Real>({std::size_t{1}});  // xtensor would broadcast it
    CHECK_THROWS_WITH(other(input, inputs_of(T)),
                      "gated convolution: a bias of (1,) does not match a weight of (20, 3)");
    other = layer;
    other.conv1d = xt::ones<Real>({std::size_t{7}, J});
    CHECK_THROWS_WITH(other(input, inputs_of(T)),
                      "convolution: a weight of (7, 3) does not match inputs of (2, 9, 20) "
                      "after (2, 2, 7)");
    GatedConvolutionCache cache = layer.make_cache();
    CHECK_THROWS_WITH(layer(input, inputs_of(T, 1), &cache),
                      "gated convolution: position ids do not begin at 0, after the cached "
                      "tokens");
    layer(tokens(input, 0, 5), inputs_of(5), &cache);
    const Tensor3 one_sequence = xt::view(input, xt::range(0, 1), xt::range(5, 6), xt::all());
    CHECK_THROWS_WITH(layer(one_sequence, inputs_of(1, 5), &cache),
                      "convolution: earlier inputs of (2, 2, 20) do not match inputs of (1, 1, "
                      "20)");
    CHECK_THROWS_WITH(layer(tokens(input, 5, 6), inputs_of(1, 6), &cache),
                      "gated convolution: position ids do not begin at 5, after the cached "
                      "tokens");
    CHECK(cache.seq_len == 5);
}

}  // namespace llm::gated_convolution_tests
