#include "chapters/25_encoders/exercise.hpp"

#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/25_encoders/unpadded.hpp"
#include "chapters/25_encoders/vision.hpp"
#include "common/tensors/matmul.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

EncoderConfig small_encoder() {
    EncoderConfig config;
    config.vocab_size = 20;
    config.hidden_size = 12;
    config.intermediate_size = 16;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.max_position_embeddings = 16;
    return config;
}

Real seen_keys(const IdMatrix& padding_mask, std::size_t t) {
    const Tensor4 mask = bidirectional_mask(padding_mask, 3);
    Real count = 0;
    for (std::size_t s = 0; s < mask.shape(3); ++s) count += mask(0, 0, t, s) == 0 ? 1 : 0;
    return count;
}

template <class Model>
void check_rows(Model model) {
    Generator generator(3);
    init_weights(model, generator);
    const BatchEncoding padded = pad({{3, 4, 5}, {6, 7, 8, 9, 10}, {11}}, 0);
    const Tensor3 expected = pad_states(model(llm::unpad(padded)), padded);
    CHECK_CLOSE(pad_states(model(exercise::unpad(padded)), padded), expected, 1e-5);
}

const std::vector<Document> documents = {
    {"a", "river", "and", "a", "bank"}, {"the", "bank"}, {}, {"a", "a", "a", "a"}};

CrossAttentionHead random_head() {
    Generator generator(6);
    const auto linear = [&](std::size_t in, std::size_t out) {
        return make_linear(in, out, false, generator);
    };
    return {linear(5, 4), linear(5, 4), linear(5, 4), linear(4, 5)};
}

}  // namespace

TEST_CASE("25.1 predict: what a window shows") {
    const IdMatrix all = xt::ones<Id>({1, 10});
    IdMatrix shorter = all;
    shorter(0, 8) = shorter(0, 9) = 0;
    INFO("three tokens on either side, as far as there are any, and the token itself");
    CHECK_CLOSE(predicted_seen_keys(),
                (Vector{seen_keys(all, 0), seen_keys(all, 5), seen_keys(all, 9),
                        seen_keys(shorter, 5)}),
                0);
}

TEST_CASE("25.2 predict: how many tokens are hidden") {
    const double chosen = 1000 * 0.15, random = chosen * 0.1;
    INFO("15 % are chosen; 80, 10 and 10 % of these. A random token can be the same one");
    CHECK_CLOSE(predicted_counts(),
                (Vector{Real(chosen), Real(chosen * 0.8), Real(random * 0.9),
                        Real(chosen * 0.1 + random * 0.1)}),
                1e-3);
}

TEST_CASE("25.3 find the bug: a batch without padding") {
    EncoderConfig config = small_encoder();
    INFO("BERT adds a vector for each position; look at those of the second text");
    check_rows(empty_bert(config));
    config.rope_theta = Real(100);
    check_rows(empty_modern_bert(config));
}

TEST_CASE("25.4 write max_sim") {
    const Matrix query = {{1, 0}, {0, 1}};
    INFO("each token of the query adds its best product");
    CHECK(max_sim(query, Matrix{{1, 0}, {Real(0.6), Real(0.8)}}) == doctest::Approx(1.8));
    CHECK(max_sim(query, Matrix{{-1, 0}, {Real(-0.6), Real(-0.8)}}) == doctest::Approx(-0.6));
    CHECK(max_sim(Matrix{{1, 0}}, Matrix{{0, 1}, {1, 0}, {0, -1}}) == doctest::Approx(1));
    CHECK_THROWS_AS(max_sim(query, Matrix{{1, 0, 0}}), ValueError);
}

TEST_CASE("25.5 write BM25+") {
    const auto frequencies = document_frequencies(documents);
    INFO("step 1: a word counts once in each document");
    CHECK(frequencies.at("a") == 2);
    CHECK(frequencies.at("bank") == 2);
    CHECK(frequencies.at("river") == 1);
    CHECK(frequencies.size() == 5);

    INFO("step 2: ln(1 + (N - n + 0.5) / (n + 0.5))");
    CHECK(inverse_document_frequency(4, 1) == doctest::Approx(std::log(1 + 3.5 / 1.5)));
    CHECK(inverse_document_frequency(4, 4) == doctest::Approx(std::log(1 + 0.5 / 4.5)));

    INFO("step 3: delta, plus tf (k1 + 1) / (tf + k1 (1 - b + b length / mean))");
    CHECK(term_weight({1.2, 0.75, 1}, 0, 5, 2.75) == 0);
    CHECK(term_weight({1.2, 0.75, 1}, 2, 5, 2.5) ==
          doctest::Approx(1 + 2 * 2.2 / (2 + 1.2 * 1.75)));
    CHECK(term_weight({2, 0, 0.5}, 3, 9, 2.5) == doctest::Approx(0.5 + 3 * 3.0 / 5));

    const std::vector<double> result = scores({}, documents, {"a", "bank", "unknown"});
    REQUIRE(result.size() == 4);
    const double idf = std::log(1 + 2.5 / 2.5), mean = 11.0 / 4;
    INFO("step 4: a word that no document has adds nothing");
    CHECK(result[1] == doctest::Approx(idf * (1 + 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / mean)))));
    CHECK(result[2] == 0);
    CHECK(result[0] ==
          doctest::Approx(idf * (2 + 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 5 / mean)) +
                                 2.2 / (1 + 1.2 * (0.25 + 0.75 * 5 / mean)))));
    CHECK(result[3] > result[1]);
}

TEST_CASE("25.6 write cross-attention") {
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

TEST_CASE("25.7 predict: how many tokens a picture has") {
    const Tensor3 patches = patchify(xt::zeros<Real>({1, 3, 224, 224}), 16),
                  more = patchify(xt::zeros<Real>({1, 3, 448, 448}), 16);
    INFO("a token for each patch, and the class token; without windows, each sees all N");
    CHECK_CLOSE(predicted_tokens(),
                (Vector{Real(1 + patches.shape(1)), Real(patches.shape(2)),
                        Real(1 + more.shape(1)), Real(more.shape(1)) / (7 * 7)}),
                0);
}

TEST_CASE("25.8 write num_segmentations") {
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
