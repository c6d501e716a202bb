// Linear attention: its three forms, a layer against PyTorch, its convolution, and its cache.
#include <malloc.h>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/20_linear_attention/linear_attention_backward.hpp"
#include "chapters/20_linear_attention/linear_cost.hpp"
#include "chapters/20_linear_attention/short_convolution.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

constexpr std::size_t B = 2, T = 70, C = 20, Hk = 2, Hv = 6, Dk = 3, Dv = 5, J = 4;

template <std::size_t N>
xt::xtensor<Real, N> part(const std::string& name) {
    return fixture<N>("20_linear_attention/" + name);
}

// The layer of the fixtures, or its gradients.
LinearAttention layer_of_fixtures(const std::string& end = "") {
    const auto linear = [&](const std::string& name) {
        return Linear{part<2>(name + end), std::nullopt};
    };
    return {Hk,
            Hv,
            UpdateRule::delta,
            linear("in_proj_qkv"),
            linear("in_proj_z"),
            linear("in_proj_b"),
            Decay{linear("in_proj_a"), part<1>("A_log" + end), part<1>("dt_bias" + end)},
            part<2>("conv1d" + end),
            {part<1>("norm" + end), Real(1e-3)},
            linear("out_proj")};
}

PatternAttentionInputs inputs_of(std::size_t seq_len, std::size_t past_len = 0) {
    return pattern_attention_inputs({}, seq_len, past_len);
}

Tensor3 tokens(const Tensor3& states, std::size_t first, std::size_t last) {
    return xt::view(states, xt::all(), xt::range(first, last), xt::all());
}

LinearAttention random_layer(std::uint32_t seed, const LinearVariant& variant = {}) {
    Generator generator(seed);
    return make_linear_attention({C, Hk, Hv, Dk, Dv, J}, variant, Real(1e-6), generator);
}

Matrix unit_rows(Matrix rows) {
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
        Real sum = 0;
        for (std::size_t d = 0; d < rows.shape(1); ++d) sum += rows(i, d) * rows(i, d);
        for (std::size_t d = 0; d < rows.shape(1); ++d) rows(i, d) /= std::sqrt(sum);
    }
    return rows;
}

HeadInputs random_head(std::size_t seq_len, std::uint32_t seed) {
    Generator generator(seed);
    return {randn({seq_len, Dk}, generator), unit_rows(randn({seq_len, Dk}, generator)),
            randn({seq_len, Dv}, generator), uniform({seq_len}, -1, 0, generator),
            uniform({seq_len}, 0, 1, generator)};
}

const std::array rules = {UpdateRule::additive, UpdateRule::delta};

}  // namespace

TEST_CASE("Linear attention without decay is attention without a softmax") {
    HeadInputs inputs = random_head(9, 1);
    inputs.log_decay.fill(0);
    inputs.beta.fill(1);
    const HeadOutput result =
        recurrent_form(inputs, UpdateRule::additive, xt::zeros<Real>({Dk, Dv}));
    for (std::size_t t = 0; t < 9; ++t)
        for (std::size_t v = 0; v < Dv; ++v) {
            double sum = 0;
            for (std::size_t s = 0; s <= t; ++s) {
                double score = 0;
                for (std::size_t d = 0; d < Dk; ++d)
                    score += double(inputs.queries(t, d)) * double(inputs.keys(s, d));
                sum += score * double(inputs.values(s, v));
            }
            CHECK(double(result.output(t, v)) == doctest::Approx(sum).epsilon(1e-4));
        }
}

TEST_CASE("With beta 1 and a key of length 1, the delta rule replaces what stands at the key") {
    HeadInputs inputs = random_head(5, 2);
    inputs.log_decay.fill(0);
    inputs.beta.fill(1);
    xt::view(inputs.queries, 4, xt::all()) = xt::view(inputs.keys, 4, xt::all());
    const Matrix zero = xt::zeros<Real>({Dk, Dv});
    const Matrix output = recurrent_form(inputs, UpdateRule::delta, zero).output;
    const Vector read = xt::view(output, 4, xt::all()),
                 written = xt::view(inputs.values, 4, xt::all());
    CHECK_CLOSE(read, written, 1e-6);
    // A step of gradient descent on |Sᵀk - v|²/2 with step size β.
    inputs.beta.fill(Real(0.3));
    const Matrix before = recurrent_form(random_head(3, 3), UpdateRule::delta, zero).state;
    Matrix state = before;
    update_state(state, inputs, 4, UpdateRule::delta);
    for (std::size_t i = 0; i < Dk; ++i)
        for (std::size_t j = 0; j < Dv; ++j) {
            Real error = -inputs.values(4, j);
            for (std::size_t d = 0; d < Dk; ++d) error += before(d, j) * inputs.keys(4, d);
            CHECK(state(i, j) ==
                  doctest::Approx(before(i, j) - Real(0.3) * inputs.keys(4, i) * error));
        }
}

TEST_CASE("The recurrent, the chunked and the parallel form give the same output and state") {
    for (const UpdateRule rule : rules)
        for (const std::size_t seq_len : {1, 2, 3, 64, 65, 150}) {
            CAPTURE(seq_len);
            const HeadInputs inputs = random_head(seq_len, 4);
            Generator generator(5);
            const Matrix state = randn({Dk, Dv}, generator);
            const HeadOutput expected = recurrent_form(inputs, rule, state);
            for (const std::size_t chunk_size : {1, 2, 7, 64}) {
                const HeadOutput chunked = chunked_form(inputs, rule, state, chunk_size);
                CHECK_CLOSE(chunked.output, expected.output, 1e-5);
                CHECK_CLOSE(chunked.state, expected.state, 1e-5);
            }
            const HeadOutput parallel = parallel_form(inputs, rule, state);
            CHECK_CLOSE(parallel.output, expected.output, 1e-5);
            CHECK_CLOSE(parallel.state, expected.state, 1e-5);
        }
}

TEST_CASE("A decay of e^-100 forgets everything, and divides nothing by 0") {
    HeadInputs inputs = random_head(70, 6);
    inputs.log_decay.fill(-100);
    Generator generator(7);
    const Matrix state = randn({Dk, Dv}, generator);
    for (const UpdateRule rule : rules) {
        const HeadOutput chunked = chunked_form(inputs, rule, state, 64);
        CHECK_CLOSE(chunked.output, recurrent_form(inputs, rule, state).output, 1e-6);
        // Only the token itself is left.
        HeadInputs last = inputs;
        CHECK_CLOSE(chunked.state, recurrent_form(last, rule, xt::zeros<Real>({Dk, Dv})).state,
                    1e-6);
    }
}

TEST_CASE("Shapes that do not match are named") {
    HeadInputs inputs = random_head(3, 1);
    CHECK_THROWS_WITH(recurrent_form(inputs, UpdateRule::delta, xt::zeros<Real>({Dv, Dk})),
                      "linear attention: a state of (5, 3) does not match keys of (3, 3) and "
                      "values of (3, 5)");
    CHECK_THROWS_WITH(chunked_form(inputs, UpdateRule::delta, xt::zeros<Real>({Dk, Dv}), 0),
                      "linear attention: chunks of 0 tokens");
    inputs.beta = xt::zeros<Real>({4});
    CHECK_THROWS_WITH(
        chunked_form(inputs, UpdateRule::delta, xt::zeros<Real>({Dk, Dv}), 1),
        "linear attention: queries of (3, 3), keys of (3, 3), values of (3, 5), 3 "
        "decays and 4 betas do not match");
    const LinearAttention layer = layer_of_fixtures();
    CHECK_THROWS_WITH(
        causal_conv1d(xt::zeros<Real>({1, 2, 9}), layer.conv1d, no_inputs(1, layer.conv1d)),
        "convolution: a weight of (42, 4) does not match inputs of (1, 2, 9) after "
        "(1, 3, 42)");
    const Matrix weight = xt::ones<Real>({9, 4});
    CHECK_THROWS_WITH(causal_conv1d(xt::zeros<Real>({1, 2, 9}), weight, no_inputs(2, weight)),
                      "convolution: earlier inputs of (2, 3, 9) do not match inputs of "
                      "(1, 2, 9)");
    Generator generator(1);
    CHECK_THROWS_WITH(make_linear_attention({C, 4, 6, Dk, Dv, J}, {}, 1, generator),
                      "linear attention: 4 key heads do not divide 6 value heads");
    const LinearSizes ones{1, 1, 1, 1, 1, 1};
    CHECK(make_linear_attention(ones, {}, 1, generator).key_head_dim() == 1);
    for (std::size_t LinearSizes::*size :
         {&LinearSizes::hidden_size, &LinearSizes::num_key_heads, &LinearSizes::num_value_heads,
          &LinearSizes::key_head_dim, &LinearSizes::value_head_dim,
          &LinearSizes::conv_kernel_dim}) {
        LinearSizes sizes = ones;
        sizes.*size = 0;
        CHECK_THROWS_WITH(make_linear_attention(sizes, {}, 1, generator),
                          "linear attention: a size is 0");
    }
    LinearCache cache = layer.make_cache();
    const Tensor3 two_tokens = xt::zeros<Real>({std::size_t{1}, std::size_t{2}, C});
    CHECK_THROWS_WITH(layer(two_tokens, inputs_of(2, 3), &cache),
                      "linear attention: position ids do not begin at 0, after the cached "
                      "tokens");
}

TEST_CASE("The convolution sees the token itself and J - 1 before it") {
    Generator generator(8);
    const Tensor3 input = randn({B, 6, 3}, generator);
    const Matrix weight = randn({3, J}, generator);
    const Tensor3 output = causal_conv1d(input, weight, no_inputs(B, weight));
    for (std::size_t b = 0; b < B; ++b)
        for (std::size_t t = 0; t < 6; ++t)
            for (std::size_t w = 0; w < 3; ++w) {
                Real expected = 0;
                for (std::size_t back = 0; back < J && back <= t; ++back)
                    expected += weight(w, J - 1 - back) * input(b, t - back, w);
                CHECK(output(b, t, w) == doctest::Approx(expected));
            }
    CHECK_CLOSE(last_inputs(no_inputs(B, weight), input), tokens(input, 3, 6), 0);
    const Tensor3 two = last_inputs(no_inputs(B, weight), tokens(input, 0, 2));
    CHECK_CLOSE(tokens(two, 1, 3), tokens(input, 0, 2), 0);
    const Tensor3 none = xt::zeros<Real>({B, std::size_t{1}, std::size_t{3}});
    CHECK_CLOSE(tokens(two, 0, 1), none, 0);
}

TEST_CASE("A layer of Gated DeltaNet and its gradients equal PyTorch's") {
    const LinearAttention layer = layer_of_fixtures();
    CHECK(layer.key_head_dim() == Dk);
    CHECK(layer.value_head_dim() == Dv);
    const Tensor3 input = part<3>("input");
    const AttentionLayer::Output output = layer(input, inputs_of(T));
    CHECK_CLOSE(output.hidden_states, part<3>("output"), 2e-5);
    CHECK(output.attentions.size() == 0);

    const auto [forward, saved] = attention_forward(layer, input, inputs_of(T));
    CHECK_CLOSE(forward, output.hidden_states, 0);
    LinearAttention gradient = layer;
    ParameterList list, expected_list;
    add_parameters(list, "", gradient);
    for (const Parameter& parameter : list)
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
    const Tensor3 input_gradient =
        attention_backward(layer, inputs_of(T), saved, part<3>("upstream"), gradient);
    CHECK_CLOSE(input_gradient, part<3>("input_gradient"), 2e-5);
    LinearAttention expected = layer_of_fixtures("_gradient");
    add_parameters(expected_list, "", expected);
    REQUIRE(list.size() == 9);
    for (std::size_t p = 0; p < list.size(); ++p) {
        CAPTURE(list[p].name);
        CHECK(difference(list[p].shape, list[p].values.data(), expected_list[p].shape,
                         expected_list[p].values.data(), 2e-5) == "");
    }
}

TEST_CASE("A cache that is filled in random pieces gives the output of one call") {
    const LinearAttention layer = layer_of_fixtures();
    const Tensor3 input = part<3>("input");
    const Tensor3 expected = layer(input, inputs_of(T)).hidden_states;
    Generator generator(9);
    for (int trial = 0; trial < 100; ++trial) {
        LinearCache cache = layer.make_cache();
        while (cache.seq_len < T) {
            const std::size_t past_len = cache.seq_len;
            // Often one token, sometimes all that are left.
            const Real draw = generator.next_uniform();
            const std::size_t count =
                draw < Real(0.5) ? 1 : 1 + std::size_t(draw * Real(T - past_len - 1));
            const Tensor3 output = layer(tokens(input, past_len, past_len + count),
                                         inputs_of(count, past_len), &cache)
                                       .hidden_states;
            CHECK_CLOSE(output, tokens(expected, past_len, past_len + count), 1e-5);
        }
        CHECK(cache.state.shape() == std::array{B, Hv, Dk, Dv});
        CHECK(cache.conv_inputs.shape() == std::array{B, J - 1, 2 * Hk * Dk + Hv * Dv});
    }
}

TEST_CASE("A token does not depend on later ones: sequences padded on the right") {
    const LinearAttention layer = layer_of_fixtures();
    Tensor3 input = part<3>("input");
    const Tensor3 expected = layer(input, inputs_of(T)).hidden_states;
    xt::view(input, 0, xt::range(30, T), xt::all()) = Real(7);
    xt::view(input, 1, xt::range(66, T), xt::all()) = Real(-7);
    const Tensor3 output = layer(input, inputs_of(T)).hidden_states;
    for (const auto& [b, length] : {std::pair<std::size_t, std::size_t>{0, 30}, {1, 66}}) {
        const Matrix of_sequence = xt::view(output, b, xt::range(0, length), xt::all()),
                     without = xt::view(expected, b, xt::range(0, length), xt::all());
        CHECK_CLOSE(of_sequence, without, 1e-6);
    }
}

TEST_CASE("A state cannot go back, and says so") {
    const LinearAttention layer = layer_of_fixtures();
    LinearCache cache = layer.make_cache();
    CHECK(cache.crop(0));
    layer(tokens(part<3>("input"), 0, 5), inputs_of(5), &cache);
    CHECK(cache.seq_len == 5);
    CHECK(cache.crop(5));
    CHECK_FALSE(cache.crop(4));
    CHECK_FALSE(cache.crop(6));
    CHECK(cache.seq_len == 5);
}

TEST_CASE("A new layer: parameters of each variant, and decays as in Mamba-2") {
    const auto num_tensors = [](const LinearVariant& variant) {
        LinearAttention layer = random_layer(1, variant);
        ParameterList list;
        add_parameters(list, "self_attn", layer);
        CHECK(list.front().name == "self_attn.in_proj_qkv.weight");
        return list.size();
    };
    CHECK(num_tensors({}) == 9);
    CHECK(num_tensors({UpdateRule::delta, true, false}) == 6);
    CHECK(num_tensors({UpdateRule::additive, false, true}) == 8);
    CHECK(num_tensors({UpdateRule::additive, false, false}) == 5);
    Generator generator(2);
    const Decay decay = *make_linear_attention({C, Hk, 600, Dk, Dv, J}, {}, 1, generator).decay;
    for (std::size_t h = 0; h < 600; ++h) {
        CHECK(decay.A_log(h) >= 0);
        CHECK(decay.A_log(h) < std::log(Real(16)));
        CHECK(softplus(decay.dt_bias(h)) > Real(0.00099));
        CHECK(softplus(decay.dt_bias(h)) < Real(0.1001));
    }
    CHECK(*std::min_element(decay.dt_bias.begin(), decay.dt_bias.end()) < -6);
    CHECK(softplus(0) == doctest::Approx(std::log(2)));
    CHECK(softplus(30) == 30);
}

TEST_CASE("Without beta everything is written, without decay nothing is forgotten") {
    const StateGates gates =
        state_gates(random_layer(3, {UpdateRule::delta, false, false}), part<3>("input"));
    for (const Real g : gates.log_decay) CHECK(g == 0);
    for (const Real beta : gates.beta) CHECK(beta == 1);
}

TEST_CASE("After 100,000 tokens, a layer has as much memory as after one") {
    Generator generator(10);
    const LinearAttention layer =
        make_linear_attention({4, 1, 2, Dk, Dv, 3}, {}, Real(1e-6), generator);
    const Tensor3 token = randn({1, 1, 4}, generator);
    LinearCache cache = layer.make_cache();
    layer(token, inputs_of(1), &cache);
    const std::size_t before = mallinfo2().uordblks;  // bytes in use
#ifdef LLM_SANITIZE
    const std::size_t num_tokens = 1000;
#else
    const std::size_t num_tokens = 100'000;
#endif
    for (std::size_t t = 1; t < num_tokens; ++t) layer(token, inputs_of(1, t), &cache);
    CHECK(cache.seq_len == num_tokens);
    CHECK(mallinfo2().uordblks <= before + 16384);  // one byte a token would be 100,000
    CHECK(cache.state.size() + cache.conv_inputs.size() == state_numbers({4, 1, 2, Dk, Dv, 3}));
}

TEST_CASE("Parameters, and FLOPs by length") {
    LinearAttention layer = random_layer(11);
    ParameterList list;
    add_parameters(list, "", layer);
    std::uint64_t count = 0;
    for (const Parameter& parameter : list) count += parameter.values.size();
    const LinearSizes sizes{C, Hk, Hv, Dk, Dv, J};
    CHECK(linear_parameters(sizes) == count);
    CHECK(linear_multiplications(sizes) == count - 2 * Hv - Dv);
    CHECK(softmax_flops(10, 3) == 1200);
    CHECK(recurrent_flops(10, 3, 5) == 1050);
    // Two chunks of 4 and one of 2.
    const auto chunk = [](std::uint64_t c) { return c * c * (22 + 8) + 90 * c; };
    CHECK(chunked_flops(10, 3, 5, 4) == 2 * chunk(4) + chunk(2));
}
