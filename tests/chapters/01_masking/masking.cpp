#include <cmath>

#include "chapters/01_masking/config.hpp"
#include "chapters/01_masking/masking.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("validate: head_dim is hidden_size / num_attention_heads unless given") {
    CHECK(validate(Config{}, 10).head_dim == 8);
    CHECK(validate(Config{.hidden_size = 96, .num_attention_heads = 4}, 10).head_dim == 24);
    CHECK(validate(Config{.hidden_size = 100, .head_dim = 12}, 10).head_dim == 12);
}

TEST_CASE("validate: one head with a head_dim of 1 is valid") {
    const Config one{.hidden_size = 1, .num_attention_heads = 1, .num_key_value_heads = 1};
    CHECK(validate(one, 1).head_dim == 1);
    CHECK(validate(Config{.hidden_size = 100, .head_dim = 1}, 1).head_dim == 1);
    CHECK(validate(Config{.num_key_value_heads = 1}, 1).num_key_value_heads == 1);
}

TEST_CASE("the default configuration is the one of the PyTorch notebook") {
    const Config config;
    CHECK(config.hidden_size == 128);
    CHECK(config.num_attention_heads == 16);
    CHECK(config.num_key_value_heads == 4);
    CHECK(config.max_position_embeddings == 256);
    CHECK(config.rope_theta == 10000);
    CHECK(config.rms_norm_eps == Real(1e-5));
    CHECK(config.attention_bias == AttentionBias::none);
    CHECK(config.attention_dropout == 0);
    CHECK(config.qk_norm == QKNormType::without_weights);
}

TEST_CASE("validate: the error states the sizes that do not match") {
    CHECK_THROWS_WITH(validate(Config{.hidden_size = 100}, 10),
                      "config: 16 query heads do not divide a hidden size of 100");
    CHECK_THROWS_WITH(validate(Config{.num_key_value_heads = 5}, 10),
                      "config: 5 key/value heads do not divide 16 query heads");
    CHECK_THROWS_WITH(
        validate(Config{}, 257),
        "config: a sequence of 257 tokens exceeds max_position_embeddings of 256");
    CHECK_NOTHROW(validate(Config{}, 256));
    CHECK_THROWS_AS(validate(Config{.hidden_size = 0}, 10), ValueError);
    CHECK_THROWS_AS(validate(Config{.num_attention_heads = 0}, 10), ValueError);
    CHECK_THROWS_WITH(
        validate(Config{.num_key_value_heads = 0}, 10),
        "config: hidden_size 128, num_attention_heads 16 and num_key_value_heads 0 "
        "must all be positive");
}

TEST_CASE("the sample input equals PyTorch's") {
    Generator generator(77);
    CHECK_CLOSE(randn({2, 10, 128}, generator), fixture<3>("01_masking/hidden_states"), 1e-5);
}

TEST_CASE("position_ids: positions start at 0 in each sequence") {
    CHECK_CLOSE(position_ids(3, 5), id_fixture<2>("01_masking/position_ids"), 0);
}

TEST_CASE("causal_mask: query t attends to the keys up to its own position and no later one") {
    for (const auto [query_len, kv_len] : {std::array<std::size_t, 2>{4, 4}, {3, 5}, {1, 6}}) {
        const Matrix mask = causal_mask(query_len, kv_len);
        for (const auto [t, s] : every_index(query_len, kv_len)) {
            const std::size_t position = kv_len - query_len + t;
            CHECK(mask(t, s) == (s <= position ? Real(0) : -infinity));
        }
    }
}

TEST_CASE("causal_mask equals PyTorch's triu, T=5 S=7") {
    CHECK_CLOSE(causal_mask(5, 7), fixture<2>("01_masking/causal_mask"), 0);
}

TEST_CASE("causal_mask: one new query attends to all keys") {
    CHECK_CLOSE(causal_mask(1, 6), Matrix(xt::zeros<Real>({1, 6})), 0);
}

TEST_CASE("causal_mask: more queries than positions is an error that states both sizes") {
    CHECK_THROWS_WITH(causal_mask(6, 5),
                      "causal_mask: 6 queries cannot be the last of 5 positions");
}

TEST_CASE("expand_mask repeats the mask for each sequence") {
    CHECK_CLOSE(expand_mask(causal_mask(5, 7), 2), fixture<4>("01_masking/attention_mask"), 0);
}

TEST_CASE("mask_padding equals PyTorch: the column of a padding key is -inf for every query") {
    const Tensor4 mask = expand_mask(causal_mask(5, 7), 2);
    const IdMatrix padding_mask = id_fixture<2>("01_masking/padding_mask");
    CHECK_CLOSE(mask_padding(mask, padding_mask), fixture<4>("01_masking/padded_mask"), 0);

    const Tensor4 per_head = xt::repeat(mask, 3, 1);  // a separate mask for each head
    const Tensor4 expected = xt::repeat(fixture<4>("01_masking/padded_mask"), 3, 1);
    CHECK_CLOSE(mask_padding(per_head, padding_mask), expected, 0);
}

TEST_CASE("mask_padding states both shapes when they do not match") {
    const Tensor4 mask = expand_mask(causal_mask(3, 5), 2);
    CHECK_THROWS_WITH(
        mask_padding(mask, xt::ones<Id>({2, 3})),
        "mask_padding: the padding mask has shape (2, 3), the mask has shape (2, 1, 3, 5)");
    CHECK_THROWS_AS(mask_padding(mask, xt::ones<Id>({1, 5})), ValueError);
}

TEST_CASE("position_ids of padded sequences equal Hugging Face's") {
    CHECK_CLOSE(position_ids(id_fixture<2>("01_masking/padding_mask")),
                id_fixture<2>("01_masking/padded_position_ids"), 0);
}

TEST_CASE("position_ids of padded sequences count tokens only, wherever the padding is") {
    CHECK_CLOSE(position_ids(IdMatrix{{1, 0, 1, 1}, {0, 1, 0, 1}}),
                (IdMatrix{{0, 1, 1, 2}, {1, 0, 1, 1}}), 0);
}

TEST_CASE("softmax: weights are positive, sum to 1 and keep the order of the scores") {
    const Matrix weights = softmax(Matrix{{0, std::log(Real(3))}, {5, 5}});
    CHECK_CLOSE(weights, (Matrix{{0.25, 0.75}, {0.5, 0.5}}), 1e-6);
}

TEST_CASE("softmax with a causal and padding mask equals PyTorch") {
    const Tensor4 masked_scores =
        fixture<4>("01_masking/scores") + fixture<4>("01_masking/padded_mask");
    CHECK_CLOSE(softmax(masked_scores), fixture<4>("01_masking/weights"), 1e-5);
}

TEST_CASE("softmax of very large scores equals PyTorch and does not overflow") {
    CHECK_CLOSE(softmax(fixture<2>("01_masking/large_scores")),
                fixture<2>("01_masking/large_weights"), 1e-5);
}

TEST_CASE("softmax: a fully masked row gives zeros, other rows are not affected") {
    const Matrix scores{{-infinity, -infinity}, {-infinity, 2}, {-300, -300}};
    CHECK_CLOSE(softmax(scores), (Matrix{{0, 0}, {0, 1}, {0.5, 0.5}}), 0);
}

TEST_CASE("softmax propagates NaN within its row") {
    const Matrix weights = softmax(Matrix{{1, NAN}, {1, 1}});
    CHECK(std::isnan(weights(0, 0)));
    CHECK(std::isnan(weights(0, 1)));
    CHECK(weights(1, 0) == Real(0.5));
}

TEST_CASE("log_sum_exp: a score minus it is the logarithm of the softmax, also of large ones") {
    const Matrix scores = {{1, -2, 0.5f, 3}, {1000, 998, -1000, 999}};  // (N, S)
    const Matrix weights = softmax(scores);
    for (std::size_t n = 0; n < 2; ++n) {
        const double sum = log_sum_exp({&scores(n, 0), 4});
        for (const std::size_t s : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
            CHECK(double(scores(n, s)) - sum ==
                  doctest::Approx(std::log(double(weights(n, s)))).epsilon(1e-5));
    }
    CHECK(log_sum_exp({&scores(0, 0), 1}) == 1);
}
