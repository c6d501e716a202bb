#include <cmath>

#include "chapters/13_training/ngram.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("ngram_losses by hand: uniform, unigrams, bigrams, trigrams") {
    // 0 occurs 3 times in 5, followed once each by 0, 1 and 2; 1 occurs once, followed by 0.
    const std::vector<Id> train = {0, 0, 1, 0, 2};
    const double p0 = (3 + 1 / 3.0) / 6, p1 = (1 + 1 / 3.0) / 6, p2 = p1;
    const double p01 = (1 + p1) / 4, p10 = (1 + p0) / 2, p010 = (1 + p10) / 2;
    const auto mean = [](double a, double b, double c) {
        return doctest::Approx(-(std::log(a) + std::log(b) + std::log(c)) / 3);
    };
    const std::vector<double> losses = ngram_losses({train, {0, 1, 0}}, 3, 3, {1});
    REQUIRE(losses.size() == 4);
    CHECK(losses[0] == doctest::Approx(std::log(3.0)));
    CHECK(losses[1] == mean(p0, p1, p0));
    CHECK(losses[2] == mean(p0, p01, p10));
    CHECK(losses[3] == mean(p0, p01, p010));  // 0 1 was followed by 0

    // 2 occurs at the end only and is followed by nothing: the unigrams decide.
    CHECK(ngram_losses({train, {2, 1, 1}}, 3, 2, {1})[2] == mean(p2, p1, p1 / 2));
    const std::vector<double> uniform = ngram_losses({train, {0, 1}}, 3, 0, {1});
    REQUIRE(uniform.size() == 1);
    CHECK(uniform[0] == doctest::Approx(losses[0]));
}

TEST_CASE("ngram_losses: after any context, the probabilities of all tokens add up to 1") {
    const std::vector<Id> train = {0, 2, 1, 0, 2, 3, 3, 1, 0, 2};
    for (const std::vector<Id>& context :
         std::vector<std::vector<Id>>{{}, {0}, {2}, {0, 2}, {1, 1}, {2, 3, 3}})
        for (std::size_t order = 0; order <= 3; ++order) {
            const auto length = double(context.size());
            const double context_loss =
                context.empty() ? 0
                                : length * ngram_losses({train, context}, 4, order, {1})[order];
            double sum = 0;
            for (Id next = 0; next < 4; ++next) {
                std::vector<Id> tokens = context;
                tokens.push_back(next);
                const double loss = ngram_losses({train, tokens}, 4, order, {1})[order];
                sum += std::exp(context_loss - (length + 1) * loss);
            }
            CHECK(sum == doctest::Approx(1));
        }
}

TEST_CASE("ngram_losses: bigrams predict a sequence in which each token determines the next") {
    std::vector<Id> tokens;
    for (Id i = 0; i < 300; ++i) tokens.push_back(i % 3);
    const std::vector<double> losses = ngram_losses({tokens, tokens}, 3, 3, {1});
    CHECK(losses[1] == doctest::Approx(std::log(3.0)));
    CHECK(losses[2] < 0.012);
    CHECK(losses[3] < losses[2]);
}

TEST_CASE("ngram_losses: a pseudo-count acts as that many occurrences, and the best is used") {
    // 0 is followed by 1 twice and by 2 once; the uniform probability of 3 tokens is 1/3.
    const std::vector<Id> train = {0, 1, 0, 1, 0, 2};
    const double p1 = (2 + 5 / 3.0) / 11, p01 = (2 + 5 * p1) / 8;
    const auto losses = [&](const std::vector<double>& pseudo_counts) {
        return ngram_losses({train, {0, 1}}, 3, 2, pseudo_counts)[2];
    };
    const double p0 = (3 + 5 / 3.0) / 11;
    CHECK(losses({5}) == doctest::Approx(-(std::log(p0) + std::log(p01)) / 2));
    CHECK(losses({5, 1, 100}) ==
          doctest::Approx(std::min({losses({5}), losses({1}), losses({100})})));
    CHECK(losses({100, 1, 5}) == losses({5, 1, 100}));
}

TEST_CASE("ngram_losses rejects contexts that do not fit into 64 bits") {
    CHECK_NOTHROW(ngram_losses({{1, 0}, {1}}, 2, 62, {1}));
    CHECK_THROWS_WITH_AS(ngram_losses({{1, 0}, {1}}, 2, 63, {1}),
                         "ngram_losses: 63 tokens of 2 do not fit into 64 bits", ValueError);
    CHECK_NOTHROW(ngram_losses({{1, 0}, {1}}, 65536, 3, {1}));
    CHECK_THROWS_AS(ngram_losses({{1, 0}, {1}}, 65536, 4, {1}), ValueError);
}
