// The search for passages: by words, by vectors and by both.
#include <numeric>
#include <set>

#include "chapters/apps/ask/evaluation.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

// The index of all pages, which several tests search.
const BookIndex& book() {
    static const BookIndex index(read_passages(asset("../docs")),
                                 load_embedding_model(asset("ask_encoder")));
    return index;
}

double answered(std::size_t k, const AnswerRanks& ranks) {
    const std::vector<double> scores = answered_at(k, ranks);
    return std::accumulate(scores.begin(), scores.end(), 0.0);
}

}  // namespace

TEST_CASE("Search words are stems, without stop words") {
    CHECK(search_words("Why do the Keys of a loss repeat?") ==
          std::vector<std::string>{"key", "loss", "repeat"});
    CHECK(search_words("divide by √D") == std::vector<std::string>{"divid", "root", "d"});
    for (const auto& [word, expected] :
         std::vector<std::pair<std::string, std::string>>{{"scaling", "scal"},
                                                          {"scales", "scal"},
                                                          {"stopped", "stop"},
                                                          {"called", "call"},
                                                          {"copied", "copy"},
                                                          {"copy", "copy"},
                                                          {"bias", "bia"},
                                                          {"axis", "axis"},
                                                          {"gas", "gas"},
                                                          {"normalization", "normal"},
                                                          {"ring", "ring"}})
        CHECK(stem(word) == expected);
}

TEST_CASE("A question that is empty or has more than 1,000 characters is rejected") {
    const char* const missing =
        "--question is missing: ./learn ask \"why divide by the root of D?\"";
    CHECK_THROWS_WITH(check_question(""), missing);
    CHECK_THROWS_WITH(check_question(" \n\t"), missing);
    std::string question = "√";  // three bytes
    question.append(999, 'x');
    CHECK_NOTHROW(check_question(question));
    CHECK_THROWS_WITH(check_question(question + "x"),
                      "--question has 1,001 characters; at most 1,000 are searched for");
}

TEST_CASE("A hundred questions: more are answered by words and vectors than by words alone") {
    const auto questions =
        read_questions(fixture_path("ask/questions.jsonl"), book().passages());
    CHECK(questions.size() == 100);
    std::vector<double> three, ten;
    for (const auto& [name, search] : search_methods(book())) {
        const AnswerRanks ranks = answer_ranks(questions, book().passages(), search);
        three.push_back(answered(3, ranks));
        ten.push_back(answered(10, ranks));
    }
    REQUIRE(three.size() == 3);
    CHECK(three[0] > 50);        // words
    CHECK(three[1] > 30);        // vectors
    CHECK(three[2] > three[0]);  // joined
    for (std::size_t n = 0; n < 3; ++n) CHECK(ten[n] > three[n]);
}

TEST_CASE("The book knows why scores are divided by the root of D") {
    CHECK(book().passages().size() > 900);
    const Ranking ranking = one_of_each_section(
        book().passages(),
        ranking_of(book().joined("why divide scores by the square root of D?", 100)));
    REQUIRE(ranking.size() > 3);
    bool found = false;
    for (std::size_t rank = 0; rank < 3; ++rank)
        found = found || book().passages()[ranking[rank]].page == "05_gqa.md";
    CHECK(found);
}

TEST_CASE("A question without a word of the book is answered by vectors alone") {
    CHECK(book().by_words("xyzzy", 3).empty());
    const auto vectors = book().by_vectors("xyzzy", 3), joined = book().joined("xyzzy", 3);
    REQUIRE(joined.size() == 3);
    CHECK(ranking_of(vectors) == ranking_of(joined));
}

TEST_CASE("Joined, words count twice: 2 / (60 + rank) and 1 / (60 + rank)") {
    const std::string question = "How does a KV cache save time?";
    const auto joined = book().joined(question, 200);
    const Ranking words = ranking_of(book().by_words(question, 100));
    const Ranking vectors = ranking_of(book().by_vectors(question, 100));
    REQUIRE(joined.size() > 100);
    for (const auto& [document, score] : joined) {
        double expected = 0;
        for (std::size_t rank = 0; rank < words.size(); ++rank)
            if (words[rank] == document) expected += 2.0 / double(61 + rank);
        for (std::size_t rank = 0; rank < vectors.size(); ++rank)
            if (vectors[rank] == document) expected += 1.0 / double(61 + rank);
        CHECK(score == doctest::Approx(expected));
    }
    CHECK(book().joined(question, 7).size() == 7);
}

TEST_CASE("Similar words have similar vectors") {
    const EmbeddingModel model = load_embedding_model(asset("ask_encoder"));
    const Matrix vectors = model.embed({"computer", "calculator", "river"});  // (3, C)
    const auto cosine = [&](std::size_t a, std::size_t b) {
        double sum = 0;
        for (std::size_t c = 0; c < vectors.shape(1); ++c)
            sum += double(vectors(a, c)) * double(vectors(b, c));
        return sum;
    };
    CHECK(cosine(0, 0) == doctest::Approx(1).epsilon(1e-5));
    CHECK(cosine(0, 1) > cosine(0, 2) + 0.05);
}
