#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/exercise.hpp"
#include "common/files/words.hpp"
#include "common/numbers/statistics.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// Random projections of 2 sequences, with H 6, Hkv 2 and D 4.
struct Projections6And2 {
    HeadSizes sizes{6, 2, 4};
    Tensor3 queries, keys, values;  // (2, T, 24), (2, S, 8), (2, S, 8)

    Projections6And2(std::size_t query_len, std::size_t kv_len) {
        Generator generator(5);
        queries = randn({2, query_len, 24}, generator);
        keys = randn({2, kv_len, 8}, generator);
        values = randn({2, kv_len, 8}, generator);
    }

    Tensor4 expected() const {  // (2, 6, T, 4), as the lesson computes it
        const Tensor4 mask = expand_mask(causal_mask(queries.shape(1), keys.shape(1)), 2);
        return grouped_query_attention(split_heads(queries, 6), split_heads(keys, 2),
                                       split_heads(values, 2), mask)
            .context;
    }

    Tensor3 result() const { return attention_from_projections(queries, keys, values, sizes); }
};

}  // namespace

TEST_CASE("5.1 predict the context of one query") {
    const Vector prediction = predicted_context();
    const Real ln4 = std::log(Real(4)), ln9 = std::log(Real(9));
    const Matrix query{{2, 0, 1, 0}}, keys{{ln4, 7, 0, 0}, {0, 3, 0, 8}, {ln9, 0, 0, 1}};
    const Matrix values{{10, 0, 5, 0}, {0, 10, 5, 0}, {0, 0, 9, 9}};
    const Matrix context = attention(query, keys, values, Matrix{{0, 0, -infinity}}).context;
    INFO("the four features of the context");
    CHECK_CLOSE(prediction, Vector(xt::view(context, 0)), 0.002);
}

TEST_CASE("5.2 predict the standard deviation of the scores") {
    const double prediction = predicted_standard_deviation();
    Generator generator(2);
    const Matrix queries = randn({500, 100}, generator) * Real(3);
    const Matrix keys = randn({500, 100}, generator) * Real(2);
    const double computed = root_mean_square(attention_scores(queries, keys));
    INFO("the standard deviation of 250,000 scores of random queries and keys");
    CHECK_CLOSE(Vector{Real(prediction)}, Vector{Real(computed)}, 0.05);
}

TEST_CASE("5.3 predict the key/value heads") {
    const Vector prediction = predicted_kv_heads();
    Tensor4 numbered = xt::zeros<Real>({1, 8, 1, 1});  // key/value head k holds the number k
    for (std::size_t k = 0; k < 8; ++k) numbered(0, k, 0, 0) = static_cast<Real>(k);
    const Tensor4 repeated = repeat_kv(numbered, 4);
    Vector used = xt::zeros<Real>({6});
    std::size_t i = 0;
    for (const std::size_t h : {0, 3, 4, 13, 24, 31}) used(i++) = repeated(0, h, 0, 0);
    INFO("the key/value heads of the query heads 0, 3, 4, 13, 24 and 31");
    CHECK_CLOSE(prediction, used, 0);
}

TEST_CASE("5.4 predict the size of a KV cache") {
    const Vector prediction = predicted_cache_mib();
    const auto mib = [](std::size_t num_kv_heads) {
        return static_cast<Real>(kv_cache_bytes_per_token(24, num_kv_heads, 64, 2) * 32768 >>
                                 20);
    };
    INFO("MiB with 2 and with 14 key/value heads");
    CHECK_CLOSE(prediction, (Vector{mib(2), mib(14)}), 0);
}

TEST_CASE("5.5 find the bug: weights for training") {
    Generator generator(1);
    const Matrix queries = randn({4, 8}, generator), keys = randn({4, 8}, generator);
    const Matrix masked_scores = attention_scores(queries, keys) + causal_mask(4, 4);
    INFO("the attention weights of four random queries and keys");
    CHECK_CLOSE(training_weights(queries, keys), softmax(masked_scores), 1e-6);
}

TEST_CASE("5.6 find the bug: weights of the first tokens") {
    const Matrix scores{{1, 2, 3}, {0, 1, 0}, {2, 1, 3}}, mask = causal_mask(3, 3);
    INFO("the attention weights of three queries");
    CHECK_CLOSE(masked_weights(scores, mask), softmax(scores + mask), 1e-6);
}

TEST_CASE("5.7 find the bug: a loop over key/value heads") {
    Generator generator(2);
    const Tensor4 queries = randn({2, 4, 3, 5}, generator),
                  keys = randn({2, 2, 3, 5}, generator);
    const Tensor4 values = randn({2, 2, 3, 5}, generator);
    const Tensor4 mask = expand_mask(causal_mask(3, 3), 2);
    INFO("the context of 4 query heads with 2 key/value heads");
    CHECK_CLOSE(context_by_kv_head(queries, keys, values, mask),
                grouped_query_attention(queries, keys, values, mask).context, 1e-6);
}

TEST_CASE("5.8 write grouped_scores") {
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

TEST_CASE("5.9 write dot_product_scores") {
    {
        INFO("two queries and three keys with 4 features, so that √D is 2");
        REQUIRE_CLOSE(dot_product_scores(Matrix{{2, 0, 2, 0}, {0, 1, 0, 0}},
                                         Matrix{{1, 0, 1, 0}, {0, 6, 1, 0}, {2, 2, 2, 2}}),
                      (Matrix{{2, 1, 4}, {0, 3, 1}}), 1e-6);
    }
    const Words words = load_words();
    {
        INFO("five words, head 4 of layer 2");
        CHECK_CLOSE(dot_product_scores(words.head_queries, words.head_keys),
                    attention_scores(words.head_queries, words.head_keys), 1e-5);
    }
}

TEST_CASE("5.10 write causal_weights") {
    const Real ln3 = std::log(Real(3));
    {
        INFO("as many queries as keys");
        REQUIRE_CLOSE(causal_weights(Matrix{{5, 9, 9}, {0, ln3, 9}, {ln3, 0, 0}}),
                      (Matrix{{1, 0, 0}, {0.25f, 0.75f, 0}, {0.6f, 0.2f, 0.2f}}), 1e-6);
    }
    {
        INFO("two queries with the last two of four positions");
        REQUIRE_CLOSE(causal_weights(Matrix{{0, ln3, 0, 9}, {0, 0, 0, 0}}),
                      (Matrix{{0.2f, 0.6f, 0.2f, 0}, {0.25f, 0.25f, 0.25f, 0.25f}}), 1e-6);
    }
    {
        INFO("large scores, also in the future");
        CHECK_CLOSE(causal_weights(Matrix{{10000, 20000}, {10000, 10000 + ln3}}),
                    (Matrix{{1, 0}, {0.25f, 0.75f}}), 1e-3);
    }
}

TEST_CASE("5.11 write head_context") {
    const Projections6And2 input(5, 5);
    const auto& [sizes, queries, keys, values] = input;
    const Tensor4 expected = input.expected();
    {
        INFO("head 0 of sequence 0, which uses key/value head 0");
        REQUIRE_CLOSE(head_context(queries, keys, values, sizes, 0, 0), head_of(expected, 0, 0),
                      1e-5);
    }
    {
        INFO("head 1 of sequence 1, which uses key/value head 0");
        REQUIRE_CLOSE(head_context(queries, keys, values, sizes, 1, 1), head_of(expected, 1, 1),
                      1e-5);
    }
    {
        INFO("head 4 of sequence 1, which uses key/value head 1");
        CHECK_CLOSE(head_context(queries, keys, values, sizes, 1, 4), head_of(expected, 1, 4),
                    1e-5);
    }
}

TEST_CASE("5.12 write attention_from_projections") {
    const Projections6And2 square(5, 5), decode(2, 7);
    {
        INFO("6 query heads and 2 key/value heads, 5 tokens");
        REQUIRE_CLOSE(square.result(), merge_heads(square.expected()), 1e-5);
    }
    {
        INFO("2 queries and 7 keys, as with a KV cache");
        REQUIRE_CLOSE(decode.result(), merge_heads(decode.expected()), 1e-5);
    }

    const auto throws = [&](const Tensor3& queries, const HeadSizes& sizes) {
        try {
            attention_from_projections(queries, square.keys, square.values, sizes);
        } catch (const ValueError&) {
            return true;
        }
        return false;
    };
    const Tensor3 three_heads = xt::zeros<Real>({2, 5, 12});
    {
        INFO("a ValueError, because 2 key/value heads do not divide 3 query heads");
        REQUIRE(throws(three_heads, {3, 2, 4}));
    }
    {
        INFO("a ValueError, because the queries have 24 features and not 4 * 4");
        REQUIRE(throws(square.queries, {4, 2, 4}));
    }
    {
        INFO("a ValueError, because the keys have 8 features and not 3 * 4");
        REQUIRE(throws(square.queries, {6, 3, 4}));
    }
}
