#include "chapters/25_encoders/retrieval.hpp"

#include <cmath>

#include "common/files/unicode.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

using Documents = std::vector<std::vector<std::string>>;

// Five documents; number 3 has no words.
Documents river_banks() {
    Documents documents;
    for (const std::string text :
         {"the bank of the river", "the bank raised the rate", "a river", "",
          "rate rate rate of of the bank and the river bank"})
        documents.push_back(words(text));
    return documents;
}

// The score of each document, 0 for those that are not found.
std::vector<double> scores_of(const Bm25Index& index, const std::string& query,
                              std::size_t num_documents = 5) {
    std::vector<double> scores(num_documents);
    for (const auto& [document, score] : index.search(words(query), num_documents))
        scores.at(document) = score;
    return scores;
}

void check_scores(const std::vector<double>& actual, const std::vector<double>& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t n = 0; n < actual.size(); ++n)
        CHECK(actual[n] == doctest::Approx(expected[n]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("words: letters, accents and digits of Unicode, in lower case") {
    using Strings = std::vector<std::string>;
    CHECK(words("Don't panic, HTML5!") == Strings{"don", "t", "panic", "html5"});
    CHECK(words("Größe ÉTÉ e\u0301te\u0301 ΑΒΓ हिन्दी") ==
          Strings{"größe", "été", "e\u0301te\u0301", "αβγ", "हिन्दी"});
    CHECK(words("snake_case 3.14 ½") == Strings{"snake", "case", "3", "14", "½"});
    CHECK(words("").empty());
    CHECK(words(" -- \n").empty());
    CHECK_THROWS_WITH_AS(words("a\xff"), "the text is not UTF-8 at byte 1", TextError);
}

TEST_CASE("BM25 of one word is its definition") {
    // "x" is in 1 of 2 documents, twice among 3 words; the mean length is 2.
    const Bm25Index index({{"x", "x", "y"}, {"y"}});
    const double idf = std::log(1 + (2 - 1 + 0.5) / (1 + 0.5));
    CHECK(index.idf("x") == doctest::Approx(idf));
    const double score = idf * 2 * 2.2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / 2));
    check_scores(scores_of(index, "x", 2), {score, 0});
}

TEST_CASE("BM25: the scores of five documents are those of other implementations") {
    // The npm package okapibm25 1.4.1 gives the same for the first three queries, and so do
    // these lines of Python:
    //
    //   from math import log
    //   D = [d.split() for d in documents]; N = len(D); mean = sum(map(len, D)) / N
    //   n = lambda w: sum(w in d for d in D)
    //   idf = lambda w: log(1 + (N - n(w) + 0.5) / (n(w) + 0.5))
    //   norm = lambda d, k1, b: k1 * (1 - b + b * len(d) / mean)
    //   def score(query, d, k1=1.2, b=0.75):
    //       return sum(idf(w) * d.count(w) * (k1 + 1) / (d.count(w) + norm(d, k1, b))
    //                  for w in query.split())
    const Bm25Index index(river_banks());
    check_scores(scores_of(index, "river"), {0.520481, 0, 0.701111, 0, 0.343491});
    check_scores(scores_of(index, "bank rate"), {0.520481, 1.365877, 0, 0, 1.592458});
    check_scores(scores_of(index, "bank of the river"),
                 {2.609786, 1.243909, 0.701111, 0, 2.274061});
    check_scores(scores_of(index, "the the"), {1.446855, 1.446855, 0, 0, 1.06536});
    const Bm25Index other(river_banks(), {.k1 = 2, .b = 0.3});
    check_scores(scores_of(other, "bank of the river"),
                 {2.718154, 1.327868, 0.607692, 0, 2.845924});
}

TEST_CASE("BM25: a word in most documents still has a positive idf") {
    const Bm25Index index({{"the"}, {"the"}, {"the", "cat"}});
    CHECK(index.idf("the") == doctest::Approx(std::log(1 + 0.5 / 3.5)));
    CHECK(index.idf("the") > 0);
    CHECK(index.idf("cat") > index.idf("the"));
    CHECK(index.idf("dog") > index.idf("cat"));
}

TEST_CASE("BM25: without k1 the count does not matter, without b the length does not") {
    const Documents documents = {{"x"}, {"x", "x", "x"}, {"x", "y", "y", "y", "y"}, {"y"}};
    const std::vector<double> binary = scores_of(Bm25Index(documents, {.k1 = 0}), "x", 4);
    CHECK(binary[0] == binary[1]);
    CHECK(binary[0] == binary[2]);
    const std::vector<double> any_length = scores_of(Bm25Index(documents, {.b = 0}), "x", 4);
    CHECK(any_length[0] == any_length[2]);
    CHECK(any_length[1] > any_length[0]);
    const std::vector<double> scores = scores_of(Bm25Index(documents), "x", 4);
    CHECK(scores[0] > scores[2]);
}

TEST_CASE("BM25: the best documents first, equal scores by number, at most count") {
    const Bm25Index index({{"a", "b"}, {"b", "c"}, {"a", "c"}, {"a", "a"}, {"a", "d"}});
    const auto found = index.search({"a"}, 10);
    std::vector<std::size_t> order;
    for (const ScoredDocument& document : found) order.push_back(document.document);
    CHECK(order == std::vector<std::size_t>{3, 0, 2, 4});
    CHECK(index.search({"a"}, 2).size() == 2);
    CHECK(index.search({"a"}, 2)[1].document == 0);
    CHECK(index.search({"a"}, 0).empty());
    CHECK(index.search({"z"}, 5).empty());
    CHECK(index.search({}, 5).empty());
}

TEST_CASE("BM25: no document, and documents without words, give no NaN") {
    CHECK(Bm25Index({}).search({"a"}, 5).empty());
    CHECK(Bm25Index({}).idf("a") == doctest::Approx(std::log(2.0)));
    CHECK(Bm25Index(Documents(2)).search({"a"}, 5).empty());
    const auto found = Bm25Index({{}, {"a"}, {}}).search({"a"}, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].document == 1);
    CHECK(std::isfinite(found[0].score));
}

TEST_CASE("BM25 says which parameter is out of range") {
    const std::string begin =
        "Bm25Index: k1 must be 0 or more and b from 0 to 1, but they are ";
    CHECK_THROWS_WITH_AS(Bm25Index({}, {.k1 = -1}), (begin + "-1 and 0.75").c_str(),
                         ValueError);
    CHECK_THROWS_WITH_AS(Bm25Index({}, {.b = 1.5}), (begin + "1.2 and 1.5").c_str(),
                         ValueError);
    CHECK_THROWS_AS(Bm25Index({}, {.b = std::nan("")}), ValueError);
    CHECK_THROWS_AS(Bm25Index({}, {.b = -0.1}), ValueError);
    CHECK_THROWS_AS(Bm25Index({}, {.k1 = std::nan("")}), ValueError);
    CHECK_THROWS_AS(Bm25Index({}, {.k1 = HUGE_VAL}), ValueError);
    CHECK_NOTHROW(Bm25Index({}, {.k1 = 0, .b = 1}));
}
