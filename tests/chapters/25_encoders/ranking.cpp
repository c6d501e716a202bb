#include "chapters/25_encoders/retrieval.hpp"

#include <cmath>

#include "tests/support/check.hpp"

using namespace llm;

namespace {

// Grades, and a ranking that finds three of the four relevant documents.
const Relevance graded = {{1, 2}, {3, 3}, {5, 2}, {7, 1}, {9, 0}};
const Relevance binary_grades = {{1, 1}, {3, 1}, {7, 1}};
const Ranking some_ranking = {9, 3, 0, 5, 8, 1};

}  // namespace

TEST_CASE("semantic_search: the highest cosine first, whatever the lengths") {
    const Matrix embeddings = {{1, 0}, {0, 5}, {3, 3}, {-2, 0}, {0, 0}, {10, 0}};
    const auto found = semantic_search(Vector{2, 0}, embeddings, 6);
    CHECK(ranking_of(found) == Ranking{0, 5, 2, 1, 4, 3});
    CHECK(found[0].score == doctest::Approx(1));
    CHECK(found[2].score == doctest::Approx(std::sqrt(0.5)));
    CHECK(found[3].score == 0);
    CHECK(found[4].score == 0);  // a vector of zeros
    CHECK(found[5].score == doctest::Approx(-1));
    CHECK(ranking_of(semantic_search(Vector{2, 0}, embeddings, 2)) == Ranking{0, 5});
    CHECK(semantic_search(Vector{0, 0}, embeddings, 1)[0].score == 0);
    CHECK(semantic_search(Vector{0, 0}, Matrix(std::array<std::size_t, 2>{0, 2}), 3).empty());
    CHECK_THROWS_WITH_AS(semantic_search(Vector{1, 2, 3}, embeddings, 1),
                         "semantic_search: the query has 3 numbers, but the embeddings have 2",
                         ValueError);
}

TEST_CASE("reciprocal_rank_fusion adds 1 / (60 + rank), with ranks from 1") {
    const auto fused = reciprocal_rank_fusion({{4, 2, 7}, {2, 9}});
    CHECK(ranking_of(fused) == Ranking{2, 4, 9, 7});
    CHECK(fused[0].score == doctest::Approx(1.0 / 62 + 1.0 / 61).epsilon(1e-12));
    CHECK(fused[1].score == doctest::Approx(1.0 / 61).epsilon(1e-12));
    CHECK(fused[2].score == doctest::Approx(1.0 / 62).epsilon(1e-12));
    CHECK(fused[3].score == doctest::Approx(1.0 / 63).epsilon(1e-12));
    // With a small k, one first place counts more than two second places.
    CHECK(ranking_of(reciprocal_rank_fusion({{1, 2}, {3, 2}}, 0)) == Ranking{1, 2, 3});
    CHECK(reciprocal_rank_fusion({{1, 4, 2}, {3, 5, 2}}, 0)[0].document == 1);
    CHECK(reciprocal_rank_fusion({{1, 4, 2}, {3, 5, 2}})[0].document == 2);
    CHECK(reciprocal_rank_fusion({}).empty());
    CHECK(reciprocal_rank_fusion({{}, {}}).empty());
}

TEST_CASE("recall_at: the share of the relevant documents among the first k") {
    CHECK(recall_at(1, some_ranking, graded) == 0);
    CHECK(recall_at(2, some_ranking, graded) == doctest::Approx(1.0 / 4));
    CHECK(recall_at(4, some_ranking, graded) == doctest::Approx(2.0 / 4));
    CHECK(recall_at(100, some_ranking, graded) == doctest::Approx(3.0 / 4));
    CHECK(recall_at(6, some_ranking, binary_grades) == doctest::Approx(2.0 / 3));
    CHECK(recall_at(3, {}, graded) == 0);
}

TEST_CASE("ndcg_at: grades are divided by log2(rank + 1), and by the best ranking's sum") {
    // By hand: the first of two relevant documents is second.
    const double by_hand = (1 / std::log2(3.0)) / (1 + 1 / std::log2(3.0));
    CHECK(ndcg_at(2, {8, 1}, {{1, 1}, {2, 1}}) == doctest::Approx(by_hand));
    CHECK(ndcg_at(3, {3, 1, 5}, graded) == doctest::Approx(1));
    CHECK(ndcg_at(1, {1}, graded) == doctest::Approx(2.0 / 3));
    CHECK(ndcg_at(10, {3, 1, 5, 7}, graded) == doctest::Approx(1));
    // From Python:
    //   dcg = lambda g: sum(x / log2(i + 2) for i, x in enumerate(g))
    //   dcg([grades.get(d, 0) for d in ranking][:k]) / dcg(sorted(grades.values())[::-1][:k])
    const std::array<std::size_t, 5> ks = {1, 2, 3, 5, 10};
    const std::array<double, 5> expected = {0, 0.444123, 0.359719, 0.483816, 0.608965};
    const std::array<double, 5> binary = {0, 0.386853, 0.296082, 0.296082, 0.463242};
    for (std::size_t i = 0; i < ks.size(); ++i) {
        CHECK(ndcg_at(ks[i], some_ranking, graded) ==
              doctest::Approx(expected[i]).epsilon(1e-5));
        CHECK(ndcg_at(ks[i], some_ranking, binary_grades) ==
              doctest::Approx(binary[i]).epsilon(1e-5));
    }
}

TEST_CASE("reciprocal_rank: 1 / the rank of the first relevant document") {
    CHECK(reciprocal_rank({3}, graded) == 1);
    CHECK(reciprocal_rank(some_ranking, graded) == doctest::Approx(1.0 / 2));
    CHECK(reciprocal_rank({8, 9, 0, 7}, graded) == doctest::Approx(1.0 / 4));
    CHECK(reciprocal_rank({8, 0}, graded) == 0);
    CHECK(mean_reciprocal_rank({{3}, {8, 9, 0, 7}, {}}, {graded, graded, binary_grades}) ==
          doctest::Approx((1 + 0.25 + 0) / 3));
}

TEST_CASE("scores of rankings name what is wrong") {
    CHECK_THROWS_WITH_AS(recall_at(2, {1, 4, 1}, graded), "document 1 is in a ranking twice",
                         ValueError);
    CHECK_THROWS_WITH_AS(reciprocal_rank_fusion({{1}, {4, 4}}),
                         "document 4 is in a ranking twice", ValueError);
    CHECK_THROWS_WITH_AS(reciprocal_rank_fusion({}, -1),
                         "reciprocal_rank_fusion: k is -1, but must be 0 or more", ValueError);
    CHECK_THROWS_WITH_AS(reciprocal_rank_fusion({}, HUGE_VAL),
                         "reciprocal_rank_fusion: k is inf, but must be 0 or more", ValueError);
    CHECK_THROWS_WITH_AS(ndcg_at(2, {1}, {{3, HUGE_VAL}}),
                         "the grade of document 3 is inf, but must be 0 or more", ValueError);
    CHECK_THROWS_WITH_AS(ndcg_at(2, {1}, {{3, 0}}),
                         "none of 1 documents with a grade is relevant", ValueError);
    CHECK_THROWS_WITH_AS(ndcg_at(2, {1}, {{3, 1}, {4, -2}}),
                         "the grade of document 4 is -2, but must be 0 or more", ValueError);
    CHECK_THROWS_WITH_AS(ndcg_at(0, {1}, graded),
                         "a score of the first k documents needs a k above 0", ValueError);
    CHECK_THROWS_WITH_AS(mean_reciprocal_rank({{1}}, {}),
                         "mean_reciprocal_rank: 1 rankings and 0 judgments", ValueError);
    CHECK_THROWS_WITH_AS(mean_reciprocal_rank({}, {}),
                         "mean_reciprocal_rank: 0 rankings and 0 judgments", ValueError);
    CHECK_THROWS_WITH_AS(bootstrap_mean({}, 1), "bootstrap_mean: there are no scores",
                         ValueError);
}

TEST_CASE("bootstrap_mean: the mean, and an interval of 1.96 standard errors on either side") {
    Generator generator(3);
    const Vector normal = randn({400}, generator);
    const std::vector<double> scores(normal.begin(), normal.end());
    double mean = 0, square = 0;
    for (const double score : scores) mean += score / 400;
    for (const double score : scores) square += (score - mean) * (score - mean);
    const double standard_error = std::sqrt(square / 400) / 20;
    const auto [bootstrapped, interval] = bootstrap_mean(scores, 77);
    CHECK(bootstrapped == doctest::Approx(mean));
    CHECK(interval.low == doctest::Approx(mean - 1.96 * standard_error).epsilon(0.1));
    CHECK(interval.high == doctest::Approx(mean + 1.96 * standard_error).epsilon(0.1));
    // The seed decides.
    CHECK(bootstrap_mean(scores, 77).interval.low == interval.low);
    CHECK(bootstrap_mean(scores, 78).interval.low != interval.low);
    // Equal scores have no spread.
    CHECK(bootstrap_mean({0.5, 0.5, 0.5}, 1).interval.low == 0.5);
    CHECK(bootstrap_mean({0.5, 0.5, 0.5}, 1).interval.high == 0.5);
}
