#include "chapters/22_speculation/exercise.hpp"

#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// Counts how often each of three tokens comes out.
std::vector<double> frequencies(const Vector& p, const Vector& q, std::size_t num_candidates,
                                double& candidate_taken) {
    constexpr int count = 20000;
    Generator generator(4);
    std::vector<double> shares(3, 0);
    for (int n = 0; n < count; ++n) {
        std::vector<Id> candidates;
        for (std::size_t k = 0; k < num_candidates; ++k)
            candidates.push_back(sample_from(q, generator));
        const Id id = accept_one_of(candidates, p, q, generator);
        REQUIRE(id < 3);
        shares[std::size_t(id)] += 1.0 / count;
        candidate_taken += std::ranges::count(candidates, id) > 0 ? 1.0 / count : 0;
    }
    return shares;
}

// How often each first token of a step comes out, if the draft samples at this temperature.
std::vector<double> first_tokens(const Matrix& target_logits, const Matrix& draft_logits,
                                 Real temperature) {
    constexpr int count = 20000;
    Generator generator(5);
    const Vector scaled = xt::view(draft_logits, 0) / temperature;  // (V)
    const Vector q = softmax(scaled);
    std::vector<double> shares(q.size(), 0);
    for (int n = 0; n < count; ++n) {
        const std::vector<Id> proposed = {sample_from(q, generator)};
        const auto kept = verify(proposed, target_logits, draft_logits, temperature, generator);
        REQUIRE(!kept.empty());
        shares[std::size_t(kept[0])] += 1.0 / count;
    }
    return shares;
}

}  // namespace

TEST_CASE("22.1 predict: what is accepted, and what takes its place") {
    const Vector p = {0.5, 0.2, 0.2, 0.1}, q = {0.2, 0.1, 0.6, 0.1};
    const Real first = residual_distribution(p, q)(0);
    INFO("min(p, q) is accepted; the rest of p, normalized, is sampled after a rejection");
    CHECK_CLOSE(predicted_acceptance(), (Vector{Real(acceptance_probability(p, q)), first}),
                1e-6);
}

TEST_CASE("22.2 predict: tokens of a step, and the speed") {
    const double num_tokens = expected_tokens_per_step(0.5, 3);
    INFO(
        "token k + 1 needs k accepted ones; the time is one verification and three draft "
        "steps");
    CHECK_CLOSE(predicted_speed(), (Vector{Real(num_tokens), Real(num_tokens / 1.375)}),
                0.0051);
}

TEST_CASE("22.3 write best_num_proposals") {
    INFO("a draft that costs nothing: as many proposals as possible");
    CHECK(best_num_proposals(0.8, 0, 8) == 8);
    INFO("nothing is accepted: no draft");
    CHECK(best_num_proposals(0, 0.1, 8) == 0);
    INFO("with 0.8 and 0.05: 3.08 for K = 7, 3.09 for K = 8, 3.08 for K = 9");
    CHECK(best_num_proposals(0.8, 0.05, 16) == 8);
    INFO("with 0.8 and 0.3: 1.38 for K = 1, 1.52 for K = 2, 1.55 for K = 3, 1.53 for K = 4");
    CHECK(best_num_proposals(0.8, 0.3, 16) == 3);
    INFO("with 0.28 and 0.33, a layer of the shipped model: slower with any K");
    CHECK(best_num_proposals(0.28, 0.33, 16) == 0);
    INFO("no more than max_proposals");
    CHECK(best_num_proposals(0.8, 0.05, 2) == 2);
}

TEST_CASE("22.4 find the bug: another temperature") {
    const Matrix target = {{1, 0.5, 0}, {0, 1, 2}}, draft = {{0, 2, 0.5}};
    for (const Real temperature : {Real(1), Real(0.5), Real(2)}) {
        const Vector scaled = xt::view(target, 0) / temperature;  // (V)
        const Vector p = softmax(scaled);
        const std::vector<double> shares = first_tokens(target, draft, temperature);
        CAPTURE(temperature);
        INFO("the first token of a step has the target's distribution at this temperature");
        // Five standard deviations of a share of 20,000.
        for (std::size_t id = 0; id < 3; ++id) REQUIRE(std::abs(shares[id] - p(id)) < 0.018);
    }
}

TEST_CASE("22.5 write accept_one_of") {
    const Vector p = {0.5, 0.3, 0.2}, q = {0.2, 0.7, 0.1};
    for (const std::size_t num_candidates : {0u, 1u, 2u, 3u}) {
        double taken = 0;
        const std::vector<double> shares = frequencies(p, q, num_candidates, taken);
        CAPTURE(num_candidates);
        INFO("whatever was proposed, the result has the distribution p");
        // Five standard deviations of a share of 20,000.
        for (std::size_t id = 0; id < 3; ++id) REQUIRE(std::abs(shares[id] - p(id)) < 0.018);
        INFO("a candidate is returned whenever that is possible: 60 %, with two 72 %");
        if (num_candidates == 1) REQUIRE(taken > 0.58);
        if (num_candidates == 2) REQUIRE(taken > 0.70);
    }
}
