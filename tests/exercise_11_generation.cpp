#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

Model small_model() { return load_model(fixture_path("09_full_model/qwen3")); }

bool remains(Real logit) { return logit != -infinity; }

}  // namespace

TEST_CASE("11.1 find the bug: a context of one token") {
    {
        INFO("a whole sequence of 4 tokens");
        CHECK_CLOSE(causal_mask_with_cache(4, 4), causal_mask(4, 4), 0);
    }
    {
        INFO("one new token after 4 cached ones attends to all of them and to itself");
        CHECK_CLOSE(causal_mask_with_cache(1, 5), (Matrix{{0, 0, 0, 0, 0}}), 0);
    }
    {
        INFO("three new tokens after two cached ones");
        CHECK_CLOSE(causal_mask_with_cache(3, 5), causal_mask(3, 5), 0);
    }
}

TEST_CASE("11.2 find the bug: wrong after the prompt") {
    const Model model = small_model();
    const AttentionLayer& layer = model.layers[0].self_attn;
    Generator generator(4);
    const Tensor3 hidden_states = randn({2, 6, 16}, generator);
    const RotaryTable table = model.rotary_table(6);
    LayerCache expected, tried;
    std::size_t past_len = 0;
    for (const std::size_t count : {3, 1, 2}) {
        const Tensor3 part =
            xt::view(hidden_states, xt::all(), xt::range(past_len, past_len + count));
        const AttentionLayer::Output right =
            layer(part, causal_attention_inputs(table, 2, count, past_len), &expected);
        INFO("new tokens: ", count, ", cached tokens: ", past_len);
        REQUIRE_CLOSE(attention_with_cache(layer, part, table, tried).hidden_states,
                      right.hidden_states, 1e-6);
        past_len += count;
    }
}

TEST_CASE("11.3 find the bug: the same tokens at every temperature") {
    const Vector logits{4, 3, 2, 1, 0};
    for (const Real temperature : {2.0f, 4.0f, 0.5f, 1.0f}) {
        INFO("temperature ", temperature, ", top-p 0.9");
        CHECK_CLOSE(temperature_and_top_p(logits, temperature, 0.9f),
                    apply_top_p(apply_temperature(logits, temperature), 0.9f), 0);
    }
}

TEST_CASE("11.4 find the bug: one token too few") {
    {
        INFO("several tokens remain");
        CHECK_CLOSE(top_p_without_sorting(Vector{1, 0.5f, 0, -0.5f}, 0.8f),
                    apply_top_p(Vector{1, 0.5f, 0, -0.5f}, 0.8f), 0);
    }
    INFO("the most likely token remains for any top-p");
    CHECK(remains(top_p_without_sorting(Vector{0, 9, 0}, 0.9f)(1)));
    CHECK_FALSE(remains(top_p_without_sorting(Vector{0, 9, 0}, 0.9f)(0)));
    CHECK(remains(top_p_without_sorting(Vector{0, 1, 0}, 0)(1)));
    CHECK_FALSE(remains(top_p_without_sorting(Vector{0, 1, 0}, 0)(0)));
}

TEST_CASE("11.5 find the bug: only the first prompt is continued correctly") {
    const Model model = small_model();
    const std::vector<std::vector<Id>> prompts = {{3, 16, 0}, {9}, {1, 2}};
    const auto outputs = generate_all(model, prompts, 8);
    REQUIRE(outputs.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        Generator generator(1);
        GenerationConfig config;
        config.sampling.temperature = 0;
        config.max_new_tokens = 8;
        INFO("prompt ", i, " alone");
        CHECK(outputs[i] == generate(model, prompts[i], config, generator));
    }
}

TEST_CASE("11.6 write min_p_without_softmax") {
    Generator generator(6);
    const Vector logits = randn({50}, generator) * Real(3);
    for (const Real min_p : {0.0f, 0.001f, 0.03f, 0.25f, 0.9f, 1.0f}) {
        INFO("min-p ", min_p);
        CHECK_CLOSE(min_p_without_softmax(logits, min_p), apply_min_p(logits, min_p), 0);
    }
}

TEST_CASE("11.7 write append and window") {
    Generator generator(7);
    const std::size_t W = 3;
    const Tensor4 keys = randn({2, 2, 7, 4}, generator),
                  values = randn({2, 2, 7, 4}, generator);
    const Tensor4 query = randn({2, 4, 1, 4}, generator);
    RollingCache cache{xt::zeros<Real>({2, 2, 3, 4}), xt::zeros<Real>({2, 2, 3, 4}), 0};
    const auto part = [](const Tensor4& all, std::size_t begin, std::size_t end) {
        return Tensor4(xt::view(all, xt::all(), xt::all(), xt::range(begin, end)));
    };
    for (std::size_t n = 0; n < 7; ++n) {
        append(cache, part(keys, n, n + 1), part(values, n, n + 1));
        const LayerCache cached = window(cache);
        INFO("after ", n + 1, " tokens, with a window of 3");
        INFO("the key of token n is in slot n % 3, the others are unchanged");
        for (std::size_t m = n < W ? 0 : n + 1 - W; m <= n; ++m)
            REQUIRE_CLOSE(part(cache.keys, m % W, m % W + 1), part(keys, m, m + 1), 0);
        const std::size_t kv_len = std::min(n + 1, W);
        REQUIRE(cached.keys.shape() == std::array<std::size_t, 4>{2, 2, kv_len, 4});
        REQUIRE(cache.keys.shape(2) == W);
        const Tensor4 mask =
            xt::zeros<Real>({std::size_t{2}, std::size_t{1}, std::size_t{1}, kv_len});
        const Tensor4 expected =
            grouped_query_attention(query, part(keys, n + 1 - kv_len, n + 1),
                                    part(values, n + 1 - kv_len, n + 1), mask)
                .context;
        CHECK_CLOSE(grouped_query_attention(query, cached.keys, cached.values, mask).context,
                    expected, 1e-6);
    }
}
