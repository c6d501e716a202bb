#include <cmath>

#include "chapters/05_gqa/attention.hpp"
#include "tests/check.hpp"

using namespace llm;

namespace {

Tensor4 no_mask(std::size_t batch_size, std::size_t query_len, std::size_t kv_len) {
    return xt::zeros<Real>({batch_size, std::size_t{1}, query_len, kv_len});
}

// The layer of the walk, as the fixtures have it.
struct Walk {
    Generator generator{77};
    Config config = complete(Config{}, 10);
    Tensor3 hidden_states = randn({2, 10, 128}, generator);
    Projections projections = make_projections(config, generator);
    RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 10);
    IdMatrix positions = position_ids(2, 10);
    Tensor4 mask = expand_mask(causal_mask(10, 10), 2);

    Tensor3 output(const AttentionLayer& layer) const {
        return layer(hidden_states, table, positions, mask);
    }
};

}  // namespace

TEST_CASE("attention by hand: the query takes three quarters from the key that fits") {
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
    const Attention result =
        grouped_query_attention(fixture<4>("05_gqa/queries"), fixture<4>("05_gqa/keys"),
                                fixture<4>("05_gqa/values"), fixture<4>("05_gqa/mask"));
    CHECK_CLOSE(result.weights, fixture<4>("05_gqa/weights"), 1e-5);
    CHECK_CLOSE(result.context, fixture<4>("05_gqa/context"), 1e-5);
}

TEST_CASE(
    "the ladder: grouped queries are multi-head attention over repeated keys and values") {
    const Tensor4 queries = fixture<4>("05_gqa/queries"), mask = fixture<4>("05_gqa/mask");
    const Tensor4 keys = fixture<4>("05_gqa/keys"), values = fixture<4>("05_gqa/values");
    const Attention repeated =
        multi_head_attention(queries, repeat_kv(keys, 2), repeat_kv(values, 2), mask);
    const Attention grouped = grouped_query_attention(queries, keys, values, mask);
    CHECK_CLOSE(grouped.weights, repeated.weights, 1e-6);
    CHECK_CLOSE(grouped.context, repeated.context, 1e-6);
}

TEST_CASE("the ladder: with Hkv = H grouped queries are multi-head attention") {
    Generator generator(1);
    const Tensor4 queries = randn({2, 3, 5, 4}, generator),
                  keys = randn({2, 3, 7, 4}, generator);
    const Tensor4 values = randn({2, 3, 7, 4}, generator), mask = no_mask(2, 5, 7);
    CHECK_CLOSE(grouped_query_attention(queries, keys, values, mask).context,
                multi_head_attention(queries, keys, values, mask).context, 0);
}

TEST_CASE("the ladder: with Hkv = 1 all heads read the same key and value head") {
    Generator generator(2);
    const Tensor4 queries = randn({2, 3, 5, 4}, generator),
                  keys = randn({2, 1, 7, 4}, generator);
    const Tensor4 values = randn({2, 1, 7, 4}, generator), mask = no_mask(2, 5, 7);
    const Attention result = grouped_query_attention(queries, keys, values, mask);
    for (const auto [b, h] : every_index(2, 3)) {
        const HeadAttention head = attention(xt::view(queries, b, h), xt::view(keys, b, 0),
                                             xt::view(values, b, 0), xt::view(mask, b, 0));
        CHECK_CLOSE(Matrix(xt::view(result.context, b, h)), head.context, 0);
    }
}

TEST_CASE("repeat_kv repeats each head in place, it does not tile") {
    CHECK_CLOSE(repeat_kv(fixture<4>("05_gqa/keys"), 2), fixture<4>("05_gqa/repeated_keys"), 0);
    const Tensor4 heads = reshape(Vector{0, 1, 2}, {1, 3, 1, 1});
    CHECK_CLOSE(reshape(repeat_kv(heads, 2), {6}), (Vector{0, 0, 1, 1, 2, 2}), 0);
}

TEST_CASE("a query that sees nothing takes nothing, and its neighbours do not notice") {
    Generator generator(3);
    const Matrix queries = randn({2, 4}, generator), keys = randn({3, 4}, generator);
    const Matrix values = randn({3, 4}, generator);
    const Real hidden = -infinity;
    const Matrix mask{{hidden, hidden, hidden}, {hidden, 0, hidden}};
    const Matrix context = attention(queries, keys, values, mask).context;
    CHECK_CLOSE(Vector(xt::view(context, 0)), Vector(xt::zeros<Real>({4})), 0);
    CHECK_CLOSE(Vector(xt::view(context, 1)), Vector(xt::view(values, 1)), 1e-6);
}

TEST_CASE("very large scores choose the best key and do not overflow") {
    const Matrix queries{{1e4, 0}}, keys{{1, 0}, {0.9f, 0}}, values{{1, 2}, {3, 4}};
    CHECK_CLOSE(attention(queries, keys, values, Matrix{{0, 0}}).context, (Matrix{{1, 2}}),
                1e-6);
}

TEST_CASE("one token of one sequence takes from itself") {
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
        "attention: keys of (7, 4) do not fit values of (6, 4)");
}

TEST_CASE("attention states both shapes when they do not fit") {
    const Tensor4 queries = counting({2, 6, 5, 4}), keys = counting({2, 3, 7, 4});
    const Tensor4 mask = no_mask(2, 5, 7);
    const auto fails = [&](const Tensor4& k, const Tensor4& v, const Tensor4& m) {
        grouped_query_attention(queries, k, v, m);
    };
    CHECK_THROWS_WITH(fails(counting({2, 4, 7, 4}), counting({2, 4, 7, 4}), mask),
                      "attention: queries of (2, 6, 5, 4) do not fit keys of (2, 4, 7, 4)");
    CHECK_THROWS_WITH(fails(counting({1, 3, 7, 4}), counting({1, 3, 7, 4}), mask),
                      "attention: queries of (2, 6, 5, 4) do not fit keys of (1, 3, 7, 4)");
    CHECK_THROWS_WITH(fails(counting({2, 3, 7, 5}), counting({2, 3, 7, 5}), mask),
                      "attention: queries of (5, 4) do not fit keys of (7, 5)");
    CHECK_THROWS_WITH(fails(keys, counting({2, 3, 6, 4}), mask),
                      "attention: keys of (2, 3, 7, 4) do not fit values of (2, 3, 6, 4)");
    CHECK_THROWS_WITH(fails(keys, keys, no_mask(2, 7, 5)),
                      "attention: a mask of (2, 1, 7, 5) does not fit queries of (2, 6, 5, 4) "
                      "and keys of (2, 3, 7, 4)");
    CHECK_THROWS_WITH(multi_head_attention(queries, keys, keys, mask),
                      "attention: queries of (2, 6, 5, 4) do not fit keys of (2, 3, 7, 4)");
    CHECK_THROWS_WITH(
        attention(counting({5, 4}), counting({7, 4}), counting({7, 4}), counting({5, 6})),
        "attention: a mask of (5, 6) does not fit scores of (5, 7)");
    CHECK_THROWS_WITH(fails(keys, counting({2, 1, 7, 4}), mask),
                      "attention: keys of (2, 3, 7, 4) do not fit values of (2, 1, 7, 4)");
    CHECK_THROWS_AS(fails(keys, keys, no_mask(1, 5, 7)), ShapeError);
    CHECK_THROWS_AS(
        multi_head_attention(queries, counting({1, 6, 7, 4}), counting({1, 6, 7, 4}), mask),
        ShapeError);
    const Tensor4 no_heads = xt::zeros<Real>({2, 0, 7, 4});
    CHECK_THROWS_AS(fails(no_heads, no_heads, mask), ShapeError);
}

TEST_CASE("rms_normalize equals PyTorch, eps inside the root") {
    CHECK_CLOSE(rms_normalize(fixture<4>("05_gqa/queries"), 1e-5f),
                fixture<4>("05_gqa/rms_normalized"), 1e-5);
    CHECK_CLOSE(rms_normalize(Matrix{{3, 4}}, 0), (Matrix{{0.848528f, 1.131371f}}), 1e-5);
    CHECK_CLOSE(rms_normalize(Matrix{{2, 2}}, 12), (Matrix{{0.5, 0.5}}), 1e-6);
    CHECK_CLOSE(rms_normalize(Matrix{{0, 0}}, 1e-5f), (Matrix{{0, 0}}), 0);
}

TEST_CASE("the weightless norm commutes with the rotation, a weighted one does not") {
    Generator generator(5);
    const Tensor4 states = randn({1, 2, 5, 8}, generator);
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 5);
    const IdMatrix positions = position_ids(1, 5);
    const auto rotate = [&](const Tensor4& x) {
        return rotate_split_half(x, table, positions);
    };
    CHECK_CLOSE(rotate(rms_normalize(states, 1e-5f)), rms_normalize(rotate(states), 1e-5f),
                1e-5);

    const Tensor4 weight = rand({1, 1, 1, 8}, generator);
    const Tensor4 before = rotate(rms_normalize(states, 1e-5f) * weight);
    const Tensor4 after = rms_normalize(rotate(states), 1e-5f) * weight;
    CHECK(!difference(before, after, 0.05).empty());
}

TEST_CASE("dropout: drops its share, scales the rest, keeps everything at 0") {
    const Tensor4 ones = xt::ones<Real>({1, 1, 100, 100});
    Generator generator(6);
    CHECK_CLOSE(dropout(ones, 0, generator), ones, 0);
    const Tensor4 kept = dropout(ones, 0.25f, generator);
    std::size_t zeros = 0;
    for (const Real weight : kept) {
        CHECK((weight == 0 || std::abs(weight - Real(4) / 3) < 1e-6));
        zeros += weight == 0;
    }
    CHECK(std::abs(static_cast<double>(zeros) / 10000 - 0.25) < 0.02);

    Generator same_seed(7), again(7), other(8);
    CHECK(dropout(ones, 0.5, same_seed) == dropout(ones, 0.5, again));
    CHECK(dropout(ones, 0.5, again) != dropout(ones, 0.5, other));
    CHECK_THROWS_AS(dropout(ones, 1, generator), ShapeError);
    CHECK_THROWS_AS(dropout(ones, -0.1f, generator), ShapeError);
}

TEST_CASE("the layer without QK norm equals PyTorch") {
    Walk walk;
    walk.config.use_qk_norm = false;
    const AttentionLayer layer{walk.config, walk.projections, {}, {}};
    CHECK_CLOSE(walk.output(layer), fixture<3>("05_gqa/no_norm_output"), 1e-5);
}

TEST_CASE("the layer with Llama 4's QK norm equals PyTorch, step by step") {
    const Walk walk;
    const AttentionLayer layer{walk.config, walk.projections, {}, {}};
    const Tensor4 queries =
        layer.placed(split_heads(walk.projections.q_proj(walk.hidden_states), 16), {},
                     walk.table, walk.positions);
    const Tensor4 keys =
        layer.placed(split_heads(walk.projections.k_proj(walk.hidden_states), 4), {},
                     walk.table, walk.positions);
    const Tensor4 values = split_heads(walk.projections.v_proj(walk.hidden_states), 4);
    CHECK_CLOSE(queries, fixture<4>("05_gqa/walk_queries"), 1e-5);
    CHECK_CLOSE(keys, fixture<4>("05_gqa/walk_keys"), 1e-5);
    const Attention result = grouped_query_attention(queries, keys, values, walk.mask);
    CHECK_CLOSE(result.weights, fixture<4>("05_gqa/walk_weights"), 1e-5);
    CHECK_CLOSE(result.context, fixture<4>("05_gqa/walk_context"), 1e-5);
    CHECK_CLOSE(walk.output(layer), fixture<3>("05_gqa/llama4_output"), 1e-5);
}

TEST_CASE("the layer with Qwen3's QK norm equals PyTorch: weighted, before the rotation") {
    const Walk walk;
    const AttentionLayer layer{walk.config, walk.projections, fixture<1>("05_gqa/q_norm"),
                               fixture<1>("05_gqa/k_norm")};
    CHECK_CLOSE(walk.output(layer), fixture<3>("05_gqa/qwen3_output"), 1e-5);
    const AttentionLayer wrong{walk.config, walk.projections, Vector{1, 2, 3}, Vector{1, 2, 3}};
    CHECK_THROWS_WITH(walk.output(wrong),
                      "attention: norm weights of (3,) do not fit heads of (2, 16, 10, 8)");
}

TEST_CASE("the layer uses the position ids and the epsilon that it is given") {
    Walk walk;
    walk.config.rms_norm_eps = Real(0.5);
    walk.table = make_rotary_table(inverse_frequencies(8, 10000), 30);
    walk.positions =
        IdMatrix{{0, 1, 2, 3, 4, 15, 16, 17, 18, 29}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18}};
    const AttentionLayer llama4{walk.config, walk.projections, {}, {}};
    CHECK_CLOSE(walk.output(llama4), fixture<3>("05_gqa/other_llama4_output"), 1e-5);
    const AttentionLayer qwen3{walk.config, walk.projections, fixture<1>("05_gqa/q_norm"),
                               fixture<1>("05_gqa/k_norm")};
    CHECK_CLOSE(walk.output(qwen3), fixture<3>("05_gqa/other_qwen3_output"), 1e-5);
    walk.config.use_qk_norm = false;
    const AttentionLayer plain{walk.config, walk.projections, {}, {}};
    CHECK_CLOSE(walk.output(plain), fixture<3>("05_gqa/other_no_norm_output"), 1e-5);
}

TEST_CASE("norm weights come together, and with use_qk_norm") {
    Walk walk;
    const Vector norm = fixture<1>("05_gqa/q_norm");
    CHECK_THROWS_AS(walk.output({walk.config, walk.projections, norm, {}}), ShapeError);
    CHECK_THROWS_AS(walk.output({walk.config, walk.projections, {}, norm}), ShapeError);
    walk.config.use_qk_norm = false;
    CHECK_THROWS_AS(walk.output({walk.config, walk.projections, norm, norm}), ShapeError);
}

TEST_CASE("kv_cache_bytes_per_token counts a key and a value for each layer and head") {
    CHECK(kv_cache_bytes_per_token(32, 32, 128, 2) == 524288);  // Llama-2-7B: half a MiB
    CHECK(kv_cache_bytes_per_token(32, 8, 128, 2) == 131072);   // Llama-3-8B: an eighth
    CHECK(kv_cache_bytes_per_token(3, 5, 7, 4) == 840);
}
