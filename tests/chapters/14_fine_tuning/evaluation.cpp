// How sure a score is: intervals, pass@k, paired differences; multiple choice and
// contamination.
#include "chapters/14_fine_tuning/evaluation.hpp"
#include "tests/support/check.hpp"

using namespace llm;

// The expected values are those of statsmodels, proportion_confint(count, n, method="wilson").
TEST_CASE("wilson_interval equals statsmodels") {
    const auto check = [](std::size_t correct, std::size_t n, double low, double high) {
        const Interval interval = wilson_interval({correct, n});
        CHECK(interval.low == doctest::Approx(low).epsilon(1e-5));
        CHECK(interval.high == doctest::Approx(high).epsilon(1e-5));
    };
    check(8, 10, 0.4901625, 0.9433178);
    check(0, 10, 0, 0.2775328);
    check(10, 10, 0.7224672, 1);
    check(50, 100, 0.4038315, 0.5961685);
}

TEST_CASE("pass_at_k counts the draws of k samples that are all wrong") {
    // Of 4 samples 1 is correct: of the 6 pairs, 3 have it.
    CHECK(pass_at_k(4, 1, 2) == doctest::Approx(0.5));
    CHECK(pass_at_k(10, 3, 1) == doctest::Approx(0.3));  // pass@1 is the fraction
    // numpy: 1 - np.prod(1 - 5 / np.arange(16 - 2 + 1, 16 + 1)), as in HumanEval.
    CHECK(pass_at_k(16, 2, 5) == doctest::Approx(0.5416666667));
    CHECK(pass_at_k(16, 0, 16) == 0);
    CHECK(pass_at_k(16, 12, 5) == 1);  // five wrong ones do not exist
    CHECK_THROWS_WITH_AS(pass_at_k(4, 5, 1), "pass_at_k: 5 correct of 4 samples, and k is 1",
                         ValueError);
    CHECK_THROWS_AS(pass_at_k(4, 1, 5), ValueError);
    CHECK_THROWS_AS(pass_at_k(4, 1, 0), ValueError);
}

TEST_CASE(
    "paired_bootstrap: the interval of a mean of pairs, narrower than that of its parts") {
    // 200 questions of which the first model solves the even ones, the second also 30 others.
    Vector first = xt::zeros<Real>({200}), second = first;
    for (std::size_t i = 0; i < 200; ++i) {
        first(i) = i % 2 == 0 ? 1 : 0;
        second(i) = i % 2 == 0 || i < 60 ? 1 : 0;
    }
    Generator generator(1);
    const PairedDifference difference = paired_bootstrap(first, second, generator, 4000);
    CHECK(difference.mean == doctest::Approx(0.15));
    // The normal approximation: 0.15 ± 1.96 sqrt(0.15 · 0.85 / 200).
    CHECK(difference.interval.low == doctest::Approx(0.1005).epsilon(0.06));
    CHECK(difference.interval.high == doctest::Approx(0.1995).epsilon(0.06));
    const PairedDifference reversed = paired_bootstrap(second, first, generator);
    CHECK(reversed.mean == doctest::Approx(-0.15));
    CHECK(reversed.interval.high < 0);
    const PairedDifference none = paired_bootstrap(first, first, generator);
    CHECK(none.interval.low == 0);
    CHECK(none.interval.high == 0);
    CHECK_THROWS_WITH_AS(paired_bootstrap({1, 0}, {1}, generator),
                         "paired_bootstrap: 2 and 1 scores are no pairs", ValueError);
    CHECK_THROWS_AS(paired_bootstrap({}, {}, generator), ValueError);
    CHECK_THROWS_AS(paired_bootstrap({1}, {0}, generator, 0), ValueError);
}

TEST_CASE("most_likely_choice: the sum prefers short answers") {
    const Vector values{-4, -2, -3};
    CHECK(most_likely_choice(values, {5, 1, 2}, ChoiceScore::sum) == 1);
    CHECK(most_likely_choice(values, {5, 1, 2}, ChoiceScore::per_token) == 0);
    CHECK(most_likely_choice({-2, -2}, {1, 1}, ChoiceScore::sum) == 0);
    CHECK_THROWS_WITH_AS(most_likely_choice(values, {1, 2}, ChoiceScore::sum),
                         "most_likely_choice: 3 log-probabilities and 2 lengths", ValueError);
    CHECK_THROWS_AS(most_likely_choice({}, {}, ChoiceScore::sum), ValueError);
    CHECK_THROWS_WITH_AS(most_likely_choice({-1, -2}, {1, 0}, ChoiceScore::sum),
                         "most_likely_choice: choice 1 has no tokens", ValueError);
}

TEST_CASE("contaminated: the same words, whatever their capitals and signs") {
    const std::vector<std::string> training{"What is 47 + 54?",
                                            "Then she said: \"Spell  rose.\""};
    CHECK(contaminated({"what is 47 + 54", "What is 47 - 54?", "What is 7 + 54?", "Spell rose",
                        "spell roses", "54? Then"},
                       training) == std::vector<bool>{true, false, false, true, false, false});
}
