#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

Model small_model() { return load_model(fixture_path("09_full_model/qwen3")); }

bool possible(Real logit) { return logit != -infinity; }

}  // namespace

TEST_CASE("10.1 find the bug: all but one word forgotten") {
    {
        INFO("a whole text of 4 tokens");
        CHECK_CLOSE(mask_behind(4, 4), causal_mask(4, 4), 0);
    }
    {
        INFO("one new token behind 4 others sees all of them and itself");
        CHECK_CLOSE(mask_behind(1, 5), (Matrix{{0, 0, 0, 0, 0}}), 0);
    }
    {
        INFO("three new tokens behind two others");
        CHECK_CLOSE(mask_behind(3, 5), causal_mask(3, 5), 0);
    }
}

TEST_CASE("10.2 find the bug: off the track, token by token") {
    const Model model = small_model();
    const AttentionLayer& layer = model.layers[0].self_attn;
    Generator generator(4);
    const Tensor3 hidden = randn({2, 6, 16}, generator);
    const RotaryTable table = model.rotary_table(6);
    KvCache expected = make_cache(model, 6), tried = make_cache(model, 6);
    std::size_t at = 0;
    for (const std::size_t count : {3, 1, 2}) {
        const Tensor3 part = xt::view(hidden, xt::all(), xt::range(at, at + count));
        const Attention right =
            attend(layer, part, placement_behind(expected, 2, count), expected.layers[0]);
        INFO("new tokens: ", count, ", behind ", at, " others");
        REQUIRE_CLOSE(attend_behind(layer, part, table, tried.layers[0]).context, right.context,
                      1e-6);
        expected.length = at += count;
    }
}

TEST_CASE("10.3 find the bug: the list stays short") {
    const Vector logits{4, 3, 2, 1, 0};
    for (const Real temperature : {2.0f, 4.0f, 0.5f, 1.0f}) {
        INFO("temperature ", temperature, ", top-p 0.9");
        CHECK_CLOSE(hot_nucleus(logits, temperature, 0.9f),
                    keep_top_p(with_temperature(logits, temperature), 0.9f), 0);
    }
}

TEST_CASE("10.4 find the bug: one word short") {
    {
        INFO("several are possible");
        CHECK_CLOSE(nucleus(Vector{1, 0.5f, 0, -0.5f}, 0.8f),
                    keep_top_p(Vector{1, 0.5f, 0, -0.5f}, 0.8f), 0);
    }
    INFO("the likeliest of the tokens stays, however small top-p is");
    CHECK(possible(nucleus(Vector{0, 9, 0}, 0.9f)(1)));
    CHECK_FALSE(possible(nucleus(Vector{0, 9, 0}, 0.9f)(0)));
    CHECK(possible(nucleus(Vector{0, 1, 0}, 0)(1)));
    CHECK_FALSE(possible(nucleus(Vector{0, 1, 0}, 0)(0)));
}

TEST_CASE("10.5 find the bug: the second text goes astray") {
    const Model model = small_model();
    const std::vector<std::vector<Id>> prompts = {{3, 16, 0}, {9}, {1, 2}};
    const auto texts = continue_all(model, prompts, 8);
    REQUIRE(texts.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        Generator generator(1);
        Writing writing;
        writing.sampling.temperature = 0;
        writing.max_new_tokens = 8;
        INFO("text ", i, " alone");
        CHECK(texts[i] == generate(model, prompts[i], writing, generator));
    }
}

TEST_CASE("10.6 write min_p_of_logits") {
    Generator generator(6);
    const Vector logits = randn({50}, generator) * Real(3);
    for (const Real p : {0.0f, 0.001f, 0.03f, 0.25f, 0.9f, 1.0f}) {
        INFO("p = ", p);
        CHECK_CLOSE(min_p_of_logits(logits, p), keep_min_p(logits, p), 0);
    }
}

TEST_CASE("10.7 write put and window_of") {
    Generator generator(7);
    const std::size_t W = 3;
    const Tensor4 keys = randn({2, 2, 7, 4}, generator),
                  values = randn({2, 2, 7, 4}, generator);
    const Tensor4 query = randn({2, 4, 1, 4}, generator);
    RingCache ring{xt::zeros<Real>({2, 2, 3, 4}), xt::zeros<Real>({2, 2, 3, 4}), 0};
    const auto part = [](const Tensor4& all, std::size_t begin, std::size_t end) {
        return Tensor4(xt::view(all, xt::all(), xt::all(), xt::range(begin, end)));
    };
    for (std::size_t n = 0; n < 7; ++n) {
        put(ring, part(keys, n, n + 1), part(values, n, n + 1));
        const LayerCache window = window_of(ring);
        INFO("after ", n + 1, " tokens, with a window of 3");
        INFO("the new key lies in slot n % 3, the others where they were");
        for (std::size_t m = n < W ? 0 : n + 1 - W; m <= n; ++m)
            REQUIRE_CLOSE(part(ring.keys, m % W, m % W + 1), part(keys, m, m + 1), 0);
        const std::size_t length = std::min(n + 1, W);
        REQUIRE(window.keys.shape() == std::array<std::size_t, 4>{2, 2, length, 4});
        REQUIRE(ring.keys.shape(2) == W);
        const Tensor4 mask =
            xt::zeros<Real>({std::size_t{2}, std::size_t{1}, std::size_t{1}, length});
        const Tensor4 expected =
            grouped_query_attention(query, part(keys, n + 1 - length, n + 1),
                                    part(values, n + 1 - length, n + 1), mask)
                .context;
        CHECK_CLOSE(grouped_query_attention(query, window.keys, window.values, mask).context,
                    expected, 1e-6);
    }
}
