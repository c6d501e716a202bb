#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

TEST_CASE("5.1 find the bug: scores that grow with head_dim") {
    Generator generator(1);
    const Matrix queries = randn({3, 16}, generator), keys = randn({5, 16}, generator);
    INFO("the dot products, divided by the root of 16");
    CHECK_CLOSE(scaled_scores(queries, keys), attention_scores(queries, keys), 1e-6);
}

TEST_CASE("5.2 find the bug: a mask added after the softmax") {
    const Matrix scores{{1, 2, 3}}, mask{{0, 0, -infinity}};
    INFO("the weights of the unmasked keys sum to 1, the weight of the masked key is 0");
    CHECK_CLOSE(masked_weights(scores, mask), softmax(scores + mask), 1e-6);
}

TEST_CASE("5.3 find the bug: a softmax along the wrong axis") {
    const Matrix scores{{1, 2, 3}, {3, 2, 0}};
    INFO("the weights of each query, a row, sum to 1");
    CHECK_CLOSE(weights_over_keys(scores), softmax(scores), 1e-6);
}

TEST_CASE("5.4 find the bug: key/value heads tiled instead of repeated") {
    const Tensor4 heads = counting({2, 2, 3, 4});
    INFO("query heads 0 and 1 use key/value head 0, query heads 2 and 3 use key/value head 1");
    CHECK_CLOSE(repeat_kv_heads(heads, 2), repeat_kv(heads, 2), 0);
}

TEST_CASE("5.5 find the bug: a mask that shows one future token") {
    INFO("no token attends to a later one");
    CHECK_CLOSE(decoder_mask(4), causal_mask(4, 4), 0);
}

TEST_CASE("5.6 find the bug: a reshape that mixes tokens") {
    Generator generator(2);
    const Tensor4 context = randn({2, 3, 5, 4}, generator);
    const Linear o_proj = make_linear(12, 7, false, generator);
    INFO("row t is the projection of the heads of token t");
    CHECK_CLOSE(merge_and_project(context, o_proj), o_proj(merge_heads(context)), 1e-6);
}

TEST_CASE("5.7 write grouped_scores") {
    Generator generator(3);
    const Tensor4 queries = randn({2, 6, 5, 4}, generator),
                  keys = randn({2, 3, 7, 4}, generator);
    const Tensor4 repeated = repeat_kv(keys, 2);
    const Tensor4 scores = grouped_scores(queries, keys);
    REQUIRE(dims(scores) == std::array<std::size_t, 4>{2, 6, 5, 7});
    INFO("the scores are the same as with repeated keys");
    for (const auto [b, h] : every_index(2, 6))
        CHECK_CLOSE(Matrix(xt::view(scores, b, h)),
                    attention_scores(xt::view(queries, b, h), xt::view(repeated, b, h)), 1e-5);
}

TEST_CASE("5.8 write log_softmax") {
    INFO("the logarithm of the softmax");
    CHECK_CLOSE(log_softmax(Matrix{{0, std::log(Real(3))}}),
                (Matrix{{std::log(Real(0.25)), std::log(Real(0.75))}}), 1e-6);
    INFO("finite where the softmax itself is 0, too");
    CHECK_CLOSE(log_softmax(Matrix{{1000, 0}, {-500, -500}}),
                (Matrix{{0, -1000}, {-std::log(Real(2)), -std::log(Real(2))}}), 1e-6);
}

TEST_CASE("5.9 write sliding_window_attention") {
    Generator generator(4);
    const Tensor4 queries = randn({2, 4, 5, 6}, generator),
                  keys = randn({2, 2, 5, 6}, generator);
    const Tensor4 values = randn({2, 2, 5, 6}, generator);
    const AttentionOutput narrow = sliding_window_attention(queries, keys, values, 1);
    INFO("with a window of 1, the context of each token is its own value");
    REQUIRE_CLOSE(narrow.context, repeat_kv(values, 2), 1e-6);
    const AttentionOutput two = sliding_window_attention(queries, keys, values, 2);
    INFO("with a window of 2, token 3 attends to tokens 2 and 3 only");
    for (const auto [b, h] : every_index(2, 4)) {
        CHECK(two.weights(b, h, 3, 1) == 0);
        CHECK(two.weights(b, h, 3, 4) == 0);
        CHECK(two.weights(b, h, 3, 2) > 0);
        CHECK(two.weights(b, h, 3, 2) + two.weights(b, h, 3, 3) == doctest::Approx(1));
    }
    INFO("with a window of T it is causal attention");
    const Tensor4 mask = expand_mask(causal_mask(5, 5), 2);
    CHECK_CLOSE(sliding_window_attention(queries, keys, values, 5).context,
                grouped_query_attention(queries, keys, values, mask).context, 1e-6);
}
