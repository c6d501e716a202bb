#include "chapters/17_long_context/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// Attention with double loops, over the keys that a function allows. The sink is exp(-inf) = 0
// if there is none.
template <class Attends>
Matrix attention_by_loops(const Matrix& queries, const Matrix& keys, const Matrix& values,
                          const Attends& attends_to, double sink = -infinity) {
    const auto [query_len, head_dim] = dims(queries);
    Matrix context = xt::zeros<Real>({query_len, head_dim});
    for (std::size_t t = 0; t < query_len; ++t) {
        double total = std::exp(sink);
        std::vector<double> sums(head_dim);
        for (std::size_t s = 0; s < keys.shape(0); ++s) {
            if (!attends_to(t, s)) continue;
            double score = 0;
            for (std::size_t d = 0; d < head_dim; ++d)
                score += double(queries(t, d)) * double(keys(s, d));
            const double weight = std::exp(score / std::sqrt(double(head_dim)));
            total += weight;
            for (std::size_t d = 0; d < head_dim; ++d) sums[d] += weight * double(values(s, d));
        }
        for (std::size_t d = 0; d < head_dim; ++d)
            context(t, d) = static_cast<Real>(sums[d] / total);
    }
    return context;
}

Tensor4 token_of(const Tensor4& states, std::size_t t) {
    return xt::view(states, xt::all(), xt::all(), xt::range(t, t + 1), xt::all());
}

}  // namespace

TEST_CASE("17.1 find the bug: right for prompts of up to W tokens") {
    for (const std::size_t window : {1, 3, 4, 8})
        for (const std::size_t seq_len : {3, 4, 9}) {
            const Matrix mask = sliding_window_mask(seq_len, window);
            for (std::size_t t = 0; t < seq_len; ++t) {
                std::size_t num_keys = 0;
                for (std::size_t s = 0; s < seq_len; ++s) num_keys += mask(t, s) == 0;
                INFO("a window of ", window, ": query ", t, " must attend to ",
                     std::min(window, t + 1), " keys, and attends to ", num_keys);
                REQUIRE(num_keys == std::min(window, t + 1));
                REQUIRE(mask(t, t) == 0);
            }
            REQUIRE_CLOSE(mask, pattern_mask(SlidingWindow{window}, seq_len, seq_len), 0);
        }
}

TEST_CASE("17.2 find the bug: the text repeats itself when the cache is full") {
    constexpr std::size_t H = 4, Hkv = 2, D = 6, length = 11, window = 3;
    Generator generator(3);
    const QueriesKeysValues heads{randn({1, H, length, D}, generator),
                                  randn({1, Hkv, length, D}, generator),
                                  randn({1, Hkv, length, D}, generator)};
    const RotaryTable table = make_rotary_table(inverse_frequencies(D, 100), length);
    const IdMatrix positions = position_ids(1, length);
    const Tensor4 expected =
        grouped_query_attention(
            apply_rotary_embedding(heads.queries, table, positions),
            apply_rotary_embedding(heads.keys, table, positions), heads.values,
            expand_mask(pattern_mask(SlidingWindow{window}, length, length), 1))
            .context;
    RollingCache cache{window};
    for (std::size_t t = 0; t < length; ++t) {
        const Tensor4 context = decode_step(
            {token_of(heads.queries, t), token_of(heads.keys, t), token_of(heads.values, t)},
            table, cache);
        INFO("a window of ", window, ", token ", t);
        REQUIRE_CLOSE(context, token_of(expected, t), 1e-5);
    }
}

TEST_CASE("17.3 find the bug: logits are off where sinks are large") {
    Generator generator(4);
    const Matrix queries = randn({3, 4}, generator), keys = randn({5, 4}, generator),
                 values = randn({5, 4}, generator);
    const Matrix mask = causal_mask(3, 5);
    for (const Real sink : {-30.0f, 0.0f, 1.0f, 3.0f}) {
        INFO("a sink of ", sink);
        REQUIRE_CLOSE(
            attention_with_sink(queries, keys, values, mask, sink),
            attention_by_loops(
                queries, keys, values, [](std::size_t t, std::size_t s) { return s <= t + 2; },
                double(sink)),
            1e-5);
    }
}

TEST_CASE("17.4 write windowed_attention") {
    Generator generator(5);
    for (const std::size_t window : {1, 2, 5, 16, 40}) {
        INFO("16 tokens, a window of ", window);
        const Matrix queries = randn({16, 6}, generator), keys = randn({16, 6}, generator),
                     values = randn({16, 6}, generator);
        REQUIRE_CLOSE(windowed_attention(queries, keys, values, window),
                      attention_by_loops(queries, keys, values,
                                         [&](std::size_t t, std::size_t s) {
                                             return s <= t && t < s + window;
                                         }),
                      1e-5);
    }
    {
        INFO("200,000 tokens and a window of 8: the scores of all pairs would need 160 GB");
        constexpr std::size_t length = 200'000, head_dim = 2;
        const Matrix queries = randn({length, head_dim}, generator);
        const Matrix keys = randn({length, head_dim}, generator);
        Matrix values = xt::zeros<Real>({length, head_dim});
        values(length - 9, 0) = values(length - 8, 1) = 1;
        const Matrix context = windowed_attention(queries, keys, values, 8);
        REQUIRE(context.shape(0) == length);
        REQUIRE(context(length - 1, 0) == 0);
        REQUIRE(context(length - 1, 1) > 0);
    }
    const Matrix one = xt::ones<Real>({1, 2});
    REQUIRE_THROWS_AS(windowed_attention(one, one, one, 0), ValueError);
}

TEST_CASE("17.5 write ntk_by_parts") {
    // Rotations in 100 positions: 40, 10, 4, 1 and 0.25.
    Vector frequencies = {40, 10, 4, 1, 0.25f};
    for (Real& frequency : frequencies) frequency *= Real(2 * 3.14159265358979 / 100);
    const Vector result = ntk_by_parts(frequencies, 8, 100, 1, 32);
    REQUIRE(result.size() == 5);
    const std::array<double, 5> ramps = {1, 9.0 / 31, 3.0 / 31, 0, 0};
    const std::array<double, 5> rotations = {40, 10, 4, 1, 0.25};
    for (std::size_t i = 0; i < 5; ++i) {
        INFO("a factor of 8, beta_slow 1, beta_fast 32: a pair with ", rotations[i],
             " rotations has a ramp of ", ramps[i]);
        REQUIRE(result(i) ==
                doctest::Approx(double(frequencies(i)) * (ramps[i] + (1 - ramps[i]) / 8)));
    }
    INFO("a factor of 1 changes nothing");
    REQUIRE_CLOSE(ntk_by_parts(frequencies, 1, 100, 1, 32), frequencies, 1e-6);
}

TEST_CASE("17.6 predict: how far back a token reaches") {
    const Vector answer = predicted_reach();
    REQUIRE(answer.size() == 2);
    INFO("one layer: the window contains the token itself");
    REQUIRE(answer(0) == 4096 - 1);
    INFO("32 layers: each reaches as far again");
    REQUIRE(answer(1) == 32 * (4096 - 1));
}

TEST_CASE("17.7 predict: cached tokens of six layers") {
    const Vector answer = predicted_cached_tokens();
    REQUIRE(answer.size() == 3);
    INFO("full attention: every layer caches every token");
    REQUIRE(answer(0) == 6 * 10000);
    INFO("windows: every layer caches 512");
    REQUIRE(answer(1) == 6 * 512);
    INFO("five windows and a full layer");
    REQUIRE(answer(2) == 5 * 512 + 10000);
}

TEST_CASE("17.8 predict: weights with a sink") {
    const Vector answer = predicted_weights();
    REQUIRE(answer.size() == 2);
    INFO("exp(0) for each key, exp(ln 2) for the sink: each key has 1 of 1 + 1 + 2");
    REQUIRE(answer(0) == doctest::Approx(1.0 / 4));
    INFO("the weights of both keys");
    REQUIRE(answer(1) == doctest::Approx(2.0 / 4));
}

TEST_CASE("17.9 write attend_and_append: any cuts of a text give the same context") {
    constexpr std::size_t T = 23, D = 6;
    Generator generator(17);
    const Matrix queries = randn({T, D}, generator) * Real(2);
    const Matrix keys = randn({T, D}, generator), values = randn({T, D}, generator);
    const auto rows = [](const Matrix& matrix, std::size_t begin, std::size_t count) {
        return Matrix(xt::view(matrix, xt::range(begin, begin + count), xt::all()));
    };
    for (const std::size_t window : {1u, 4u, 5u, 40u})
        for (int cuts = 0; cuts < 20; ++cuts) {
            Ring ring{xt::zeros<Real>({window, D}), xt::zeros<Real>({window, D})};
            const Matrix expected = attention_by_loops(
                queries, keys, values,
                [&](std::size_t t, std::size_t s) { return s <= t && t - s < window; });
            for (std::size_t begin = 0; begin < T;) {
                const std::size_t count =
                    std::min<std::size_t>(T - begin, 1 + generator.next_32_bits() % 9);
                const Matrix context =
                    attend_and_append(ring, rows(queries, begin, count),
                                      rows(keys, begin, count), rows(values, begin, count));
                INFO("window ", window, ", tokens ", begin, " to ", begin + count - 1);
                REQUIRE_CLOSE(context, rows(expected, begin, count), 1e-5);
                begin += count;
                REQUIRE(ring.seq_len == begin);
                REQUIRE(ring.keys.shape(0) == window);
            }
            for (std::size_t p = T - std::min(T, window); p < T; ++p) {
                INFO("window ", window, ": the row of position ", p);
                REQUIRE(ring.keys(p % window, 0) == keys(p, 0));
            }
        }
}
