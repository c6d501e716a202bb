#include "chapters/26_encoder_decoder/exercise.hpp"

#include <cmath>

#include "common/tensors/matmul.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

CrossAttentionHead random_head() {
    Generator generator(6);
    const auto linear = [&](std::size_t in, std::size_t out) {
        return make_linear(in, out, false, generator);
    };
    return {linear(5, 4), linear(5, 4), linear(5, 4), linear(4, 5)};
}

}  // namespace

TEST_CASE("26.1 predict: buckets of distances") {
    INFO("the keys after the query have the second half of the buckets");
    IdVector buckets = {0, 0, 0, 0};
    const std::array<std::int64_t, 4> distances = {-3, 3, -20, 1000};
    for (std::size_t i = 0; i < 4; ++i)
        buckets(i) = static_cast<Id>(relative_position_bucket(distances[i], true));
    CHECK(predicted_buckets() == buckets);
}

TEST_CASE("26.2 predict: two caches") {
    const auto numbers = [](Id num_tokens) { return 2 * 6 * 8 * 64 * num_tokens; };
    INFO("keys and values, of the text and of what is written");
    CHECK(predicted_cached() == (IdVector{numbers(100 + 10), numbers(100 + 20)}));
}

TEST_CASE("26.3 find the bug: a bias with a cache") {
    Generator generator(4);
    const RelativePositionBias bias{randn({8, 3}, generator), false, 12};
    const Tensor4 whole = bias(7, 7);
    for (const std::size_t query_len : {7, 3, 1}) {
        CAPTURE(query_len);
        const Tensor4 last = xt::view(whole, xt::all(), xt::all(),
                                      xt::range(7 - query_len, std::size_t{7}), xt::all());
        INFO("the new tokens are the last ones");
        CHECK_CLOSE(position_bias(bias, query_len, 7), last, 0);
    }
}

TEST_CASE("26.4 write num_segmentations") {
    const std::set<std::string> onion = {"o", "n", "i", "on", "ion", "oni"};
    CHECK(num_segmentations("onion", onion) == 8);
    CHECK(num_segmentations("noon", onion) == 2);
    CHECK(num_segmentations("", onion) == 1);
    CHECK_MESSAGE(num_segmentations("onions", onion) == 0, "there is no token for s");
    CHECK_MESSAGE(num_segmentations("aaaa", {"aa", "aaa"}) == 1, "aa aa");
    CHECK_MESSAGE(num_segmentations("日本日", {"日", "本", "日本"}) == 2,
                  "a letter may have several bytes");
    INFO("two tokens, 60 letters: the 61st Fibonacci number");
    CHECK(num_segmentations(std::string(60, 'a'), {"a", "aa"}) == 2504730781961);
}

TEST_CASE("26.5 write cross-attention") {
    Generator generator(7);
    const CrossAttentionHead head = random_head();
    const Matrix text = randn({6, 5}, generator), tokens = randn({3, 5}, generator);
    const IdVector padding_mask = {1, 1, 1, 1, 0, 0};
    {
        INFO("step 1: the projections of the encoder's output");
        const auto [keys, values] = project_text(head, text);
        CHECK_CLOSE(keys, head.k_proj(text), 1e-6);
        CHECK_CLOSE(values, head.v_proj(text), 1e-6);
    }
    const Matrix queries = {{2, 0}, {0, 1}}, keys = {{1, 0}, {0, 1}, {9, 9}};
    {
        INFO("step 2: softmax of q k / root of D, without the columns of padding");
        const double a = std::exp(2 / std::sqrt(2.0)), b = std::exp(1 / std::sqrt(2.0));
        CHECK_CLOSE(cross_weights(queries, keys, {1, 1, 0}),
                    (Matrix{{Real(a / (a + 1)), Real(1 / (a + 1)), 0},
                            {Real(1 / (b + 1)), Real(b / (b + 1)), 0}}),
                    1e-6);
    }
    std::optional<EncodedKeys> cache;
    const Matrix output = cross_attention(head, tokens, text, padding_mask, cache);
    {
        INFO("step 3: weights times values, projected; the cache is filled");
        const Matrix weights =
            cross_weights(head.q_proj(tokens), head.k_proj(text), padding_mask);
        const Matrix context = matmul(weights, head.v_proj(text));
        CHECK_CLOSE(output, head.o_proj(context), 1e-5);
        REQUIRE(cache.has_value());
        CHECK_CLOSE(cache->keys, head.k_proj(text), 1e-6);
    }
    {
        INFO("step 3: a full cache is used, and the encoder's output is not read again");
        const Matrix nothing = xt::zeros<Real>({6, 5});
        CHECK_CLOSE(cross_attention(head, tokens, nothing, padding_mask, cache), output, 1e-6);
    }
    INFO("step 4: q and o, scores and context; and k and v of the whole text, without a cache");
    CHECK(multiply_adds(5, 4, 6, true) == 2 * 5 * 4 + 2 * 6 * 4);
    CHECK(multiply_adds(5, 4, 6, false) == 2 * 5 * 4 + 2 * 6 * 4 + 2 * 6 * 5 * 4);
}
