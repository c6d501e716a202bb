// Soft caps, learned sinks and the temperature of queries, against PyTorch and its autograd.
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/score_mod.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

template <std::size_t N>
xt::xtensor<Real, N> saved_by_pytorch(const std::string& name) {
    return fixture<N>("17_long_context/" + name);
}

QueriesKeysValues heads_fixture() {
    return {saved_by_pytorch<4>("queries"), saved_by_pytorch<4>("keys"),
            saved_by_pytorch<4>("values")};
}

// The second sequence has three tokens of padding on the left.
Tensor4 padded_mask(const AttentionPattern& pattern) {
    const IdMatrix padding = id_fixture<2>("17_long_context/padding_mask");
    const IdMatrix positions = position_ids(padding);
    return mask_padding(pattern_mask(pattern, positions, positions), padding);
}

void check_forward(const std::string& name, const ScoreMod& score_mod,
                   const AttentionPattern& pattern) {
    const AttentionOutput output =
        grouped_query_attention(heads_fixture(), padded_mask(pattern), score_mod);
    CHECK_CLOSE(output.weights, saved_by_pytorch<4>(name + "_weights"), 1e-5);
    CHECK_CLOSE(output.context, saved_by_pytorch<4>(name + "_context"), 1e-5);
}

// Returns the gradient of the sinks.
std::optional<Vector> check_gradients(const std::string& name, const ScoreMod& score_mod,
                                      const Tensor4& mask) {
    const QueriesKeysValues heads = heads_fixture();
    const Tensor4 attentions = grouped_query_attention(heads, mask, score_mod).weights;
    ScoreMod gradient = score_mod;
    if (gradient.sinks) *gradient.sinks *= 0;
    const auto [queries, keys, values] = grouped_query_attention_backward(
        heads, mask, attentions, {}, saved_by_pytorch<4>("context_gradient"), score_mod,
        gradient);
    CHECK_CLOSE(queries, saved_by_pytorch<4>(name + "_queries_gradient"), 1e-5);
    CHECK_CLOSE(keys, saved_by_pytorch<4>(name + "_keys_gradient"), 1e-5);
    CHECK_CLOSE(values, saved_by_pytorch<4>(name + "_values_gradient"), 1e-5);
    return gradient.sinks;
}

ScoreMod with_sinks(std::optional<Real> softcap) {
    return {Real(0.4), softcap, saved_by_pytorch<1>("sinks")};
}

}  // namespace

TEST_CASE("a soft cap is nearly the identity near 0 and never exceeds the cap") {
    const Matrix capped = logit_softcap({{0, 1, -1, 1000, -1000}}, 50);
    CHECK(capped(0, 0) == 0);
    CHECK(capped(0, 1) == doctest::Approx(1).epsilon(0.001));
    CHECK(capped(0, 2) == -capped(0, 1));
    CHECK(capped(0, 3) == 50);
    CHECK(capped(0, 4) == -50);
    const Tensor3 logits = {{{30, -60}}};
    CHECK_CLOSE(logit_softcap(logits, 30),
                (Tensor3{{{Real(30 * std::tanh(1.0)), Real(-30 * std::tanh(2.0))}}}), 1e-6);
    CHECK_THROWS_WITH_AS(logit_softcap(Matrix{{1}}, 0),
                         "logit_softcap: the cap must be positive", ValueError);
}

TEST_CASE("softmax_with_sink: the weights and the sink's sum to 1, a sink of -inf is none") {
    Generator generator(3);
    const Matrix scores = randn({4, 6}, generator) * Real(3);
    const auto [weights, sink_weights] = softmax_with_sink(scores, Real(0.7));
    for (std::size_t t = 0; t < 4; ++t) {
        double denominator = std::exp(0.7);
        for (std::size_t s = 0; s < 6; ++s) denominator += std::exp(double(scores(t, s)));
        for (std::size_t s = 0; s < 6; ++s)
            CHECK(weights(t, s) ==
                  doctest::Approx(std::exp(double(scores(t, s))) / denominator).epsilon(1e-5));
        CHECK(sink_weights(t) == doctest::Approx(std::exp(0.7) / denominator).epsilon(1e-5));
    }
    CHECK_CLOSE(softmax_with_sink(scores, -infinity).weights, softmax(scores), 1e-6);
}

TEST_CASE(
    "softmax_with_sink: large logits do not overflow, and a masked row goes to the sink") {
    const Matrix scores = {{1000, -infinity}, {-infinity, -infinity}};
    const auto [weights, sink_weights] = softmax_with_sink(scores, 1000);
    CHECK_CLOSE(weights, (Matrix{{0.5f, 0}, {0, 0}}), 1e-6);
    CHECK_CLOSE(sink_weights, (Vector{0.5f, 1}), 1e-6);
}

TEST_CASE(
    "attention with a score modification equals PyTorch: windows, chunks, padding, caps and "
    "sinks") {
    check_forward("plain", {Real(0.4), std::nullopt, std::nullopt}, SlidingWindow{4});
    check_forward("softcap", {Real(0.4), Real(1.5), std::nullopt}, ChunkedAttention{3});
    check_forward("sink", with_sinks(std::nullopt), SlidingWindow{4});
    check_forward("both", with_sinks(Real(1.5)), SlidingWindow{4});
}

TEST_CASE("without cap and sinks, it is the attention of chapter 05") {
    const QueriesKeysValues heads = heads_fixture();
    const Tensor4 mask = padded_mask(SlidingWindow{3});
    const Real scale = 1 / std::sqrt(static_cast<Real>(heads.queries.shape(3)));
    const AttentionOutput output =
        grouped_query_attention(heads, mask, {scale, std::nullopt, std::nullopt});
    const AttentionOutput expected =
        grouped_query_attention(heads.queries, heads.keys, heads.values, mask);
    CHECK_CLOSE(output.weights, expected.weights, 1e-5);
    CHECK_CLOSE(output.context, expected.context, 1e-5);
}

TEST_CASE("grouped_query_attention_backward with caps and sinks equals PyTorch's autograd") {
    const Tensor4 chunks = expand_mask(pattern_mask(ChunkedAttention{3}, 11, 11), 2);
    CHECK(!check_gradients("softcap", {Real(0.4), Real(1.5), std::nullopt}, chunks));

    const Tensor4 window = padded_mask(SlidingWindow{4});
    CHECK_CLOSE(*check_gradients("sink", with_sinks(std::nullopt), window),
                saved_by_pytorch<1>("sink_sinks_gradient"), 1e-5);
    CHECK_CLOSE(*check_gradients("both", with_sinks(Real(1.5)), window),
                saved_by_pytorch<1>("both_sinks_gradient"), 1e-5);
}

TEST_CASE("tune_temperature equals Llama 4's formula, and begins at 1") {
    const IdMatrix positions = position_ids(id_fixture<2>("17_long_context/padding_mask"));
    const Tensor4 queries = saved_by_pytorch<4>("queries");
    CHECK_CLOSE(tune_temperature(queries, positions, {5, Real(0.3)}),
                saved_by_pytorch<4>("tuned_queries"), 1e-6);

    const Tensor4 ones = xt::ones<Real>({1, 1, 3, 1});
    const Tensor4 tuned = tune_temperature(ones, {{8190, 8191, 16383}}, {});
    CHECK(tuned(0, 0, 0, 0) == 1);
    CHECK(tuned(0, 0, 1, 0) == doctest::Approx(1 + 0.1 * std::log(2.0)));
    CHECK(tuned(0, 0, 2, 0) == doctest::Approx(1 + 0.1 * std::log(3.0)));

    // Ministral 3 counts positions from 0.
    const Tensor4 from_0 = tune_temperature(ones, {{8191, 8192, 16384}}, {8192, 0.1f, 0});
    CHECK_CLOSE(from_0, tuned, 1e-6);
}

TEST_CASE("grouped_query_attention names sinks and shapes that do not match") {
    const QueriesKeysValues heads{counting({1, 4, 2, 3}), counting({1, 2, 5, 3}),
                                  counting({1, 2, 5, 3})};
    const Tensor4 mask = xt::zeros<Real>({1, 1, 2, 5});
    CHECK_THROWS_WITH_AS(grouped_query_attention(heads, mask, {1, std::nullopt, Vector{1, 2}}),
                         "attention: 2 sinks for 4 heads", ValueError);
    CHECK_THROWS_WITH_AS(grouped_query_attention(heads, xt::zeros<Real>({1, 1, 2, 4}), {}),
                         "attention: a mask of (1, 1, 2, 4) does not match queries of "
                         "(1, 4, 2, 3) and keys of (1, 2, 5, 3)",
                         ValueError);
    CHECK_THROWS_WITH_AS(
        grouped_query_attention({heads.queries, counting({1, 3, 5, 3}), counting({1, 3, 5, 3})},
                                mask, {}),
        "attention: queries of (1, 4, 2, 3) do not match keys of "
        "(1, 3, 5, 3)",
        ValueError);
    CHECK_THROWS_WITH_AS(tune_temperature(heads.queries, IdMatrix{{0}}, {}),
                         "tune_temperature: position ids of (1, 1) do not match queries of "
                         "(1, 4, 2, 3)",
                         ValueError);
}
