#include "chapters/25_encoders/exercise.hpp"

#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/25_encoders/unpadded.hpp"
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
