#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/05_gqa/attention.hpp"
#include "chapters/05_gqa/dropout.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Tensor4 no_mask(std::size_t batch_size, std::size_t query_len, std::size_t kv_len) {
    return xt::zeros<Real>({batch_size, std::size_t{1}, query_len, kv_len});
}

// The attention layer of the chapter's program and its inputs, as the fixtures have them.
struct Example {
    Generator generator{77};
    Config config = validate(Config{}, 10);
    Tensor3 hidden_states = randn({2, 10, 128}, generator);  // (B, T, C)
    AttentionLayer layer{16, 4, make_projections(config, generator), NoQKNorm{}};
    AttentionInputs inputs = causal_attention_inputs(config, 2, 10);

    Tensor3 output(const QKNorm& qk_norm) {
        layer.qk_norm = qk_norm;
        return layer(hidden_states, inputs).hidden_states;
    }
};

QKNormWithWeights qwen3_norm(Real eps) {
    return {fixture<1>("05_gqa/q_norm"), fixture<1>("05_gqa/k_norm"), eps};
}

// The tokens from first up to last of each sequence.
Tensor3 tokens(const Tensor3& hidden_states, std::size_t first, std::size_t last) {
    return xt::view(hidden_states, xt::all(), xt::range(first, last));
}

}  // namespace

TEST_CASE("attention by hand: a key with weight 3/4 contributes 3/4 of its value") {
    // Scores 2 * ln 3 / sqrt 4 = ln 3 and 0: weights 3/4 and 1/4.
    const Real ln3 = std::log(Real(3));
    const Matrix queries{{2, 0, 0, 0}};
    const Matrix keys{{ln3, 0, 0, 0}, {0, 1, 1, 1}};
    const Matrix values{{4, 0, 0, 8}, {0, 4, 0, 0}};
    const auto [weights, context] = attention(queries, keys, values, Matrix{{0, 0}});
    CHECK_CLOSE(weights, (Matrix{{0.75, 0.25}}), 1e-6);
    CHECK_CLOSE(context, (Matrix{{3, 1, 0, 6}}), 1e-6);
}

TEST_CASE("attention_scores equal PyTorch's, divided by the root of D") {
    const Matrix queries = xt::view(fixture<4>("05_gqa/queries"), 0, 1);
    const Matrix keys = xt::view(fixture<4>("05_gqa/keys"), 0, 0);
    CHECK_CLOSE(attention_scores(queries, keys), fixture<2>("05_gqa/scores"), 1e-5);
}

TEST_CASE("grouped_query_attention equals PyTorch, T=5 S=7 H=6 Hkv=3, with padding") {
    const AttentionOutput result =
        grouped_query_attention(fixture<4>("05_gqa/queries"), fixture<4>("05_gqa/keys"),
                                fixture<4>("05_gqa/values"), fixture<4>("05_gqa/mask"));
    CHECK_CLOSE(result.weights, fixture<4>("05_gqa/weights"), 1e-5);
    CHECK_CLOSE(result.context, fixture<4>("05_gqa/context"), 1e-5);
}

TEST_CASE("grouped-query attention equals multi-head attention over repeated keys and values") {
    const Tensor4 queries = fixture<4>("05_gqa/queries"), mask = fixture<4>("05_gqa/mask");
    const Tensor4 keys = fixture<4>("05_gqa/keys"), values = fixture<4>("05_gqa/values");
    const AttentionOutput repeated =
        multi_head_attention(queries, repeat_kv(keys, 2), repeat_kv(values, 2), mask);
    const AttentionOutput grouped = grouped_query_attention(queries, keys, values, mask);
    CHECK_CLOSE(grouped.weights, repeated.weights, 1e-6);
    CHECK_CLOSE(grouped.context, repeated.context, 1e-6);
}

TEST_CASE("grouped-query attention with Hkv = H is multi-head attention") {
    Generator generator(1);
    const Tensor4 queries = randn({2, 3, 5, 4}, generator),
                  keys = randn({2, 3, 7, 4}, generator);
    const Tensor4 values = randn({2, 3, 7, 4}, generator), mask = no_mask(2, 5, 7);
    CHECK_CLOSE(grouped_query_attention(queries, keys, values, mask).context,
                multi_head_attention(queries, keys, values, mask).context, 0);
}

TEST_CASE("grouped-query attention with Hkv = 1 uses one key/value head for all query heads") {
    Generator generator(2);
    const Tensor4 queries = randn({2, 3, 5, 4}, generator),
                  keys = randn({2, 1, 7, 4}, generator);
    const Tensor4 values = randn({2, 1, 7, 4}, generator), mask = no_mask(2, 5, 7);
    const AttentionOutput result = grouped_query_attention(queries, keys, values, mask);
    for (const auto [b, h] : every_index(2, 3)) {
        const HeadAttentionOutput head = attention(head_of(queries, b, h), head_of(keys, b, 0),
                                                   head_of(values, b, 0), head_of(mask, b, 0));
        CHECK_CLOSE(head_of(result.context, b, h), head.context, 0);
    }
}

TEST_CASE("repeat_kv repeats each head G times in a row, it does not tile") {
    CHECK_CLOSE(repeat_kv(fixture<4>("05_gqa/keys"), 2), fixture<4>("05_gqa/repeated_keys"), 0);
    const Tensor4 heads = reshape(Vector{0, 1, 2}, {1, 3, 1, 1});
    CHECK_CLOSE(reshape(repeat_kv(heads, 2), {6}), (Vector{0, 0, 1, 1, 2, 2}), 0);
}

TEST_CASE("a fully masked query gives zeros and does not change the other queries") {
    Generator generator(3);
    const Matrix queries = randn({2, 4}, generator), keys = randn({3, 4}, generator);
    const Matrix values = randn({3, 4}, generator);
    const Real masked = -infinity;
    const Matrix mask{{masked, masked, masked}, {masked, 0, masked}};
    const Matrix context = attention(queries, keys, values, mask).context;
    CHECK_CLOSE(Vector(xt::view(context, 0)), Vector(xt::zeros<Real>({4})), 0);
    CHECK_CLOSE(Vector(xt::view(context, 1)), Vector(xt::view(values, 1)), 1e-6);
}

TEST_CASE("very large scores select the highest-scoring key and do not overflow") {
    const Matrix queries{{1e4, 0}}, keys{{1, 0}, {0.9f, 0}}, values{{1, 2}, {3, 4}};
    CHECK_CLOSE(attention(queries, keys, values, Matrix{{0, 0}}).context, (Matrix{{1, 2}}),
                1e-6);
}

TEST_CASE("a sequence of one token attends to itself") {
    Generator generator(4);
    const Tensor4 queries = randn({1, 2, 1, 4}, generator),
                  keys = randn({1, 1, 1, 4}, generator);
    const Tensor4 values = randn({1, 1, 1, 4}, generator);
    CHECK_CLOSE(grouped_query_attention(queries, keys, values, no_mask(1, 1, 1)).context,
                repeat_kv(values, 2), 1e-6);
}

TEST_CASE("attention of one head states both shapes of keys and values") {
    CHECK_THROWS_WITH(
        attention(counting({5, 4}), counting({7, 4}), counting({6, 4}), counting({5, 7})),
        "attention: keys of (7, 4) do not match values of (6, 4)");
}

TEST_CASE("attention states both shapes when they do not match") {
    const Tensor4 queries = counting({2, 6, 5, 4}), keys = counting({2, 3, 7, 4});
    const Tensor4 mask = no_mask(2, 5, 7);
    const auto fails = [&](const Tensor4& k, const Tensor4& v, const Tensor4& m) {
        grouped_query_attention(queries, k, v, m);
    };
    CHECK_THROWS_WITH(fails(counting({2, 4, 7, 4}), counting({2, 4, 7, 4}), mask),
                      "attention: queries of (2, 6, 5, 4) do not match keys of (2, 4, 7, 4)");
    CHECK_THROWS_WITH(fails(counting({1, 3, 7, 4}), counting({1, 3, 7, 4}), mask),
                      "attention: queries of (2, 6, 5, 4) do not match keys of (1, 3, 7, 4)");
    CHECK_THROWS_WITH(fails(counting({2, 3, 7, 5}), counting({2, 3, 7, 5}), mask),
                      "attention: queries of (5, 4) do not match keys of (7, 5)");
    CHECK_THROWS_WITH(fails(keys, counting({2, 3, 6, 4}), mask),
                      "attention: keys of (2, 3, 7, 4) do not match values of (2, 3, 6, 4)");
    CHECK_THROWS_WITH(
        fails(keys, keys, no_mask(2, 7, 5)),
        "attention: a mask of (2, 1, 7, 5) does not match queries of (2, 6, 5, 4) "
        "and keys of (2, 3, 7, 4)");
    CHECK_THROWS_WITH(multi_head_attention(queries, keys, keys, mask),
                      "attention: queries of (2, 6, 5, 4) do not match keys of (2, 3, 7, 4)");
    CHECK_THROWS_WITH(
        attention(counting({5, 4}), counting({7, 4}), counting({7, 4}), counting({5, 6})),
        "attention: a mask of (5, 6) does not match scores of (5, 7)");
    CHECK_THROWS_WITH(fails(keys, counting({2, 1, 7, 4}), mask),
                      "attention: keys of (2, 3, 7, 4) do not match values of (2, 1, 7, 4)");
    CHECK_THROWS_AS(fails(keys, keys, no_mask(1, 5, 7)), ValueError);
    CHECK_THROWS_AS(
        multi_head_attention(queries, counting({1, 6, 7, 4}), counting({1, 6, 7, 4}), mask),
        ValueError);
    const Tensor4 no_heads = xt::zeros<Real>({2, 0, 7, 4});
    CHECK_THROWS_AS(fails(no_heads, no_heads, mask), ValueError);
}

TEST_CASE("rms_normalize equals PyTorch, eps inside the root") {
    CHECK_CLOSE(rms_normalize(fixture<4>("05_gqa/queries"), 1e-5f),
                fixture<4>("05_gqa/rms_normalized"), 1e-5);
    CHECK_CLOSE(rms_normalize(Matrix{{3, 4}}, 0), (Matrix{{0.848528f, 1.131371f}}), 1e-5);
    CHECK_CLOSE(rms_normalize(Matrix{{2, 2}}, 12), (Matrix{{0.5, 0.5}}), 1e-6);
    CHECK_CLOSE(rms_normalize(Matrix{{0, 0}}, 1e-5f), (Matrix{{0, 0}}), 0);
}

TEST_CASE("rms_normalize commutes with RoPE without weights, but not with weights") {
    Generator generator(5);
    const Tensor4 states = randn({1, 2, 5, 8}, generator);
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 5);
    const IdMatrix positions = position_ids(1, 5);
    const auto rotate = [&](const Tensor4& x) {
        return apply_rotary_embedding(x, table, positions);
    };
    CHECK_CLOSE(rotate(rms_normalize(states, 1e-5f)), rms_normalize(rotate(states), 1e-5f),
                1e-5);

    const Tensor4 weight = rand({1, 1, 1, 8}, generator);
    const Tensor4 norm_first = rotate(rms_normalize(states, 1e-5f) * weight);
    const Tensor4 rope_first = rms_normalize(rotate(states), 1e-5f) * weight;
    CHECK(!difference(norm_first, rope_first, 0.05).empty());
}

TEST_CASE("dropout sets its fraction to 0, scales the rest, and changes nothing at 0") {
    const Tensor4 ones = xt::ones<Real>({1, 1, 100, 100});
    Generator generator(6);
    CHECK_CLOSE(dropout(ones, 0, generator), ones, 0);
    const Tensor4 dropped = dropout(ones, 0.25f, generator);
    std::size_t zeros = 0;
    for (const Real weight : dropped) {
        CHECK((weight == 0 || std::abs(weight - Real(4) / 3) < 1e-6));
        zeros += weight == 0;
    }
    CHECK(std::abs(static_cast<double>(zeros) / 10000 - 0.25) < 0.02);

    Generator same_seed(7), again(7), other(8);
    CHECK(dropout(ones, 0.5, same_seed) == dropout(ones, 0.5, again));
    CHECK(dropout(ones, 0.5, again) != dropout(ones, 0.5, other));
    CHECK_THROWS_AS(dropout(ones, 1, generator), ValueError);
    CHECK_THROWS_AS(dropout(ones, -0.1f, generator), ValueError);
}

TEST_CASE("dropout of hidden states drops the same elements as dropout of one head") {
    const Tensor3 states = counting({2, 5, 4});
    Generator generator(9), same_seed(9);
    const Tensor4 as_heads = dropout(reshape(states, {2, 1, 5, 4}), 0.5, same_seed);
    CHECK_CLOSE(dropout(states, 0.5, generator), reshape(as_heads, {2, 5, 4}), 0);
}

TEST_CASE("project_qkv splits queries into H heads, keys and values into Hkv heads") {
    const Example example;
    const auto& [q_proj, k_proj, v_proj, o_proj] = example.layer.projections;
    const auto [queries, keys, values] = project_qkv(example.layer, example.hidden_states);
    CHECK_CLOSE(queries, split_heads(q_proj(example.hidden_states), 16), 0);
    CHECK_CLOSE(keys, split_heads(k_proj(example.hidden_states), 4), 0);
    CHECK_CLOSE(values, split_heads(v_proj(example.hidden_states), 4), 0);
}

TEST_CASE("project_output merges the heads of each token before o_proj") {
    const Example example;
    Generator generator(10);
    const Tensor4 context = randn({2, 16, 3, 8}, generator);
    CHECK_CLOSE(project_output(example.layer, context),
                example.layer.projections.o_proj(merge_heads(context)), 0);
}

TEST_CASE("apply_qk_norm_and_rope rotates queries and keys and leaves values unchanged") {
    const Example example;
    const auto& [table, positions, mask] = example.inputs;
    const QueriesKeysValues projected = project_qkv(example.layer, example.hidden_states);
    const auto [queries, keys, values] =
        apply_qk_norm_and_rope(NoQKNorm{}, projected, example.inputs);
    CHECK_CLOSE(queries, apply_rotary_embedding(projected.queries, table, positions), 0);
    CHECK_CLOSE(keys, apply_rotary_embedding(projected.keys, table, positions), 0);
    CHECK_CLOSE(values, projected.values, 0);
}

TEST_CASE("QK norm without weights normalizes after RoPE, equal to PyTorch at each step") {
    const Example example;
    const QKNormWithoutWeights norm{Real(1e-5)};
    const QueriesKeysValues projected = project_qkv(example.layer, example.hidden_states);
    const auto [queries, keys, values] =
        apply_qk_norm_and_rope(norm, projected, example.inputs);
    CHECK_CLOSE(queries, fixture<4>("05_gqa/demo_queries"), 1e-5);
    CHECK_CLOSE(keys, fixture<4>("05_gqa/demo_keys"), 1e-5);
    CHECK_CLOSE(values, projected.values, 0);
    const AttentionOutput result =
        grouped_query_attention(queries, keys, values, example.inputs.attention_mask);
    CHECK_CLOSE(result.weights, fixture<4>("05_gqa/demo_weights"), 1e-5);
    CHECK_CLOSE(result.context, fixture<4>("05_gqa/demo_context"), 1e-5);

    // Without weights the order changes rounding errors only, so this comparison is exact.
    const auto& [table, positions, mask] = example.inputs;
    const Tensor4 rotated = apply_rotary_embedding(projected.queries, table, positions);
    CHECK_CLOSE(queries, rms_normalize(rotated, norm.eps), 0);
}

TEST_CASE("QK norm with weights normalizes before RoPE, queries and keys with their own") {
    const Example example;
    const QKNormWithWeights norm = qwen3_norm(Real(0.25));
    const QueriesKeysValues projected = project_qkv(example.layer, example.hidden_states);
    const auto [queries, keys, values] =
        apply_qk_norm_and_rope(norm, projected, example.inputs);
    const auto expected = [&](const Tensor4& heads, const Vector& weight) {
        const Tensor4 scaled = rms_normalize(heads, norm.eps) * reshape(weight, {1, 1, 1, 8});
        return apply_rotary_embedding(scaled, example.inputs.rotary_table,
                                      example.inputs.position_ids);
    };
    CHECK_CLOSE(queries, expected(projected.queries, norm.q_weight), 1e-6);
    CHECK_CLOSE(keys, expected(projected.keys, norm.k_weight), 1e-6);
    CHECK_CLOSE(values, projected.values, 0);
}

TEST_CASE("QK norm states both shapes when its weights do not have D elements") {
    Example example;
    const Vector three{1, 2, 3}, eight = xt::ones<Real>({8});
    CHECK_THROWS_WITH(example.output(QKNormWithWeights{three, eight}),
                      "attention: norm weights of (3,) do not match heads of (2, 16, 10, 8)");
    CHECK_THROWS_WITH(example.output(QKNormWithWeights{eight, three}),
                      "attention: norm weights of (3,) do not match heads of (2, 4, 10, 8)");
}

TEST_CASE("the layer without QK norm equals PyTorch") {
    Example example;
    CHECK_CLOSE(example.output(NoQKNorm{}), fixture<3>("05_gqa/no_norm_output"), 1e-5);
}

TEST_CASE("the layer with Llama 4's QK norm equals PyTorch, and returns its attentions") {
    Example example;
    CHECK_CLOSE(example.output(QKNormWithoutWeights{Real(1e-5)}),
                fixture<3>("05_gqa/llama4_output"), 1e-5);
    CHECK_CLOSE(example.layer(example.hidden_states, example.inputs).attentions,
                fixture<4>("05_gqa/demo_weights"), 1e-5);
}

TEST_CASE("the layer with Qwen3's QK norm equals PyTorch: with weights, before RoPE") {
    Example example;
    CHECK_CLOSE(example.output(qwen3_norm(Real(1e-5))), fixture<3>("05_gqa/qwen3_output"),
                1e-5);
}

TEST_CASE("the layer uses the position ids and the epsilon that it is given") {
    Example example;
    example.inputs.rotary_table = make_rotary_table(inverse_frequencies(8, 10000), 30);
    example.inputs.position_ids =
        IdMatrix{{0, 1, 2, 3, 4, 15, 16, 17, 18, 29}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18}};
    CHECK_CLOSE(example.output(QKNormWithoutWeights{Real(0.5)}),
                fixture<3>("05_gqa/other_llama4_output"), 1e-5);
    CHECK_CLOSE(example.output(qwen3_norm(Real(0.5))), fixture<3>("05_gqa/other_qwen3_output"),
                1e-5);
    CHECK_CLOSE(example.output(NoQKNorm{}), fixture<3>("05_gqa/other_no_norm_output"), 1e-5);
}

TEST_CASE("causal_attention_inputs: position ids continue after past_len tokens") {
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 9);
    const AttentionInputs inputs = causal_attention_inputs(table, 2, 3, 4);
    CHECK_CLOSE(inputs.position_ids, (IdMatrix{{4, 5, 6}, {4, 5, 6}}), 0);
    CHECK_CLOSE(inputs.rotary_table.cos, table.cos, 0);
    CHECK_CLOSE(inputs.rotary_table.sin, table.sin, 0);
}

TEST_CASE("causal_attention_inputs: the mask is lower-right aligned") {
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 6);
    const Tensor4 mask = causal_attention_inputs(table, 2, 2, 3).attention_mask;
    REQUIRE(dims(mask) == std::array<std::size_t, 4>{2, 1, 2, 5});
    const Matrix expected{{0, 0, 0, 0, -infinity}, {0, 0, 0, 0, 0}};
    CHECK_CLOSE(head_of(mask, 0, 0), expected, 0);
    CHECK_CLOSE(head_of(mask, 1, 0), expected, 0);
}

TEST_CASE("causal_attention_inputs of a configuration uses its theta and its scaling") {
    Config config = validate(Config{}, 10);
    config.rope_theta = 500;
    config.rope_scaling = Llama3Scaling{8, 1, 4, 64};
    const AttentionInputs inputs = causal_attention_inputs(config, 2, 10);
    const RotaryTable expected = make_rotary_table(rope_frequencies(config), 10);
    CHECK_CLOSE(inputs.rotary_table.cos, expected.cos, 0);
    CHECK_CLOSE(inputs.rotary_table.sin, expected.sin, 0);
    CHECK_CLOSE(inputs.position_ids, position_ids(2, 10), 0);
    CHECK_CLOSE(inputs.attention_mask, expand_mask(causal_mask(10, 10), 2), 0);
}

TEST_CASE("causal_attention_inputs fails when the rotary table is too short") {
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 6);
    CHECK_NOTHROW(causal_attention_inputs(table, 2, 2, 4));
    CHECK_THROWS_WITH(causal_attention_inputs(table, 2, 3, 4),
                      "attention: kv_len 7 exceeds the 6 positions of the rotary table");
}

TEST_CASE("LayerCache::update appends along the sequence axis of each head") {
    const Tensor4 keys = counting({2, 3, 5, 4}), values = keys + Real(1000);
    const auto part = [](const Tensor4& heads, std::size_t first, std::size_t last) -> Tensor4 {
        return xt::view(heads, xt::all(), xt::all(), xt::range(first, last));
    };
    LayerCache cache;
    cache.update(part(keys, 0, 2), part(values, 0, 2));
    CHECK_CLOSE(cache.keys, part(keys, 0, 2), 0);
    cache.update(part(keys, 2, 3), part(values, 2, 3));
    cache.update(part(keys, 3, 5), part(values, 3, 5));
    CHECK_CLOSE(cache.keys, keys, 0);
    CHECK_CLOSE(cache.values, values, 0);
}

TEST_CASE("LayerCache::update states both shapes and changes nothing when B, Hkv or D differ") {
    const Tensor4 heads = counting({2, 3, 5, 4});
    LayerCache cache;
    cache.update(heads, heads);
    CHECK_THROWS_WITH(cache.update(counting({1, 3, 1, 4}), counting({1, 3, 1, 4})),
                      "cache: (1, 3, 1, 4) cannot be appended to (2, 3, 5, 4)");
    CHECK_THROWS_WITH(cache.update(counting({2, 4, 1, 4}), counting({2, 4, 1, 4})),
                      "cache: (2, 4, 1, 4) cannot be appended to (2, 3, 5, 4)");
    CHECK_THROWS_WITH(cache.update(counting({2, 3, 1, 4}), counting({2, 3, 1, 5})),
                      "cache: (2, 3, 1, 5) cannot be appended to (2, 3, 5, 4)");
    CHECK_CLOSE(cache.keys, heads, 0);
    CHECK_CLOSE(cache.values, heads, 0);
}

TEST_CASE("the layer with a cache, token by token, equals the layer without one") {
    Example example;
    const RotaryTable& table = example.inputs.rotary_table;
    for (const QKNorm& qk_norm :
         {QKNorm{NoQKNorm{}}, QKNorm{QKNormWithoutWeights{}}, QKNorm{qwen3_norm(Real(1e-6))}}) {
        const Tensor3 expected = example.output(qk_norm);
        LayerCache cache;
        for (std::size_t t = 0; t < 10; ++t) {
            const AttentionInputs inputs = causal_attention_inputs(table, 2, 1, t);
            const auto [output, attentions] =
                example.layer(tokens(example.hidden_states, t, t + 1), inputs, &cache);
            CHECK_CLOSE(output, tokens(expected, t, t + 1), 1e-5);
            CHECK(dims(attentions) == std::array<std::size_t, 4>{2, 16, 1, t + 1});
        }
        CHECK(dims(cache.values) == std::array<std::size_t, 4>{2, 4, 10, 8});
    }
}

TEST_CASE("the layer with a cache, in chunks of several tokens, equals the layer without one") {
    Example example;
    const Tensor3 expected = example.output(QKNormWithoutWeights{});
    LayerCache cache;
    for (const auto& [first, last] : {std::pair{0, 4}, std::pair{4, 7}, std::pair{7, 10}}) {
        const AttentionInputs inputs =
            causal_attention_inputs(example.inputs.rotary_table, 2, last - first, first);
        const Tensor3 output =
            example.layer(tokens(example.hidden_states, first, last), inputs, &cache)
                .hidden_states;
        CHECK_CLOSE(output, tokens(expected, first, last), 1e-5);
    }
}

TEST_CASE("the layer states both shapes when its inputs do not match") {
    const Example example;
    const RotaryTable& table = example.inputs.rotary_table;
    CHECK_THROWS_WITH(
        example.layer(example.hidden_states, causal_attention_inputs(table, 2, 9)),
        "rope: position ids of (2, 9) do not match states of (2, 16, 10, 8)");
    AttentionInputs inputs = example.inputs;
    inputs.attention_mask = no_mask(2, 10, 9);
    CHECK_THROWS_WITH(example.layer(example.hidden_states, inputs),
                      "attention: a mask of (2, 1, 10, 9) does not match queries of "
                      "(2, 16, 10, 8) and keys of (2, 4, 10, 8)");
}

TEST_CASE("make_attention_layer builds the QK norm, bias and dropout of its configuration") {
    Config config = validate(Config{}, 10);
    config.rms_norm_eps = Real(0.125);
    config.attention_dropout = Real(0.25);
    const auto make = [&](QKNormType type) {
        config.qk_norm = type;
        Generator generator(77);
        return make_attention_layer(config, generator);
    };
    CHECK(std::holds_alternative<NoQKNorm>(make(QKNormType::none).qk_norm));
    CHECK(std::get<QKNormWithoutWeights>(make(QKNormType::without_weights).qk_norm).eps ==
          Real(0.125));
    const auto norm = std::get<QKNormWithWeights>(make(QKNormType::with_weights).qk_norm);
    CHECK_CLOSE(norm.q_weight, Vector(xt::ones<Real>({8})), 0);
    CHECK_CLOSE(norm.k_weight, Vector(xt::ones<Real>({8})), 0);
    CHECK(norm.eps == Real(0.125));

    config.attention_bias = AttentionBias::qkv;
    const AttentionLayer layer = make(QKNormType::none);
    CHECK(layer.num_attention_heads == 16);
    CHECK(layer.num_key_value_heads == 4);
    CHECK(layer.attention_dropout == Real(0.25));
    CHECK(layer.projections.k_proj.bias.has_value());
    CHECK(!layer.projections.o_proj.bias.has_value());
    Generator generator(77);
    CHECK_CLOSE(layer.projections.o_proj.weight,
                make_projections(config, generator).o_proj.weight, 0);
}

TEST_CASE("kv_cache_bytes_per_token counts a key and a value for each layer and head") {
    CHECK(kv_cache_bytes_per_token(32, 32, 128, 2) == 524288);  // Llama-2-7B: half a MiB
    CHECK(kv_cache_bytes_per_token(32, 8, 128, 2) == 131072);   // Llama-3-8B: a quarter of it
    CHECK(kv_cache_bytes_per_token(3, 5, 7, 4) == 840);
}
