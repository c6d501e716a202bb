#include "chapters/22_speculation/speculative_sampling.hpp"
#include "chapters/22_speculation/draft.hpp"
#include "tests/support/chi_square.hpp"

using namespace llm;

namespace {

const Vector target_p{0.5f, 0.3f, 0.2f};
const Vector draft_q{0.2f, 0.7f, 0.1f};

// A proposal of tokens that were sampled from given distributions.
Proposal sampled_proposal(const std::vector<Vector>& distributions, Generator& generator) {
    Proposal proposal{{}, distributions};
    for (const Vector& q : distributions) proposal.ids.push_back(sample_from(q, generator));
    return proposal;
}

// How often each token is the first result, if q proposes it and p verifies it.
std::vector<std::size_t> first_tokens(const Vector& p, const Vector& q, std::size_t samples) {
    Generator generator(11);
    std::vector<std::size_t> counts(p.size());
    for (std::size_t i = 0; i < samples; ++i) {
        const Proposal proposal = sampled_proposal({q}, generator);
        const auto target = [&](std::size_t) { return p; };
        ++counts[std::size_t(accept_proposal(proposal, target, generator).front())];
    }
    return counts;
}

}  // namespace

TEST_CASE("speculative sampling by hand: acceptance and residual of 3 tokens") {
    // min(p, q) is 0.2, 0.3, 0.1; max(0, p - q) is 0.3, 0, 0.1.
    CHECK(acceptance_probability(target_p, draft_q) == doctest::Approx(0.6));
    CHECK_CLOSE(residual_distribution(target_p, draft_q), (Vector{0.75f, 0, 0.25f}), 1e-6);
    CHECK_CLOSE(residual_distribution(draft_q, target_p), (Vector{0, 1, 0}), 1e-6);

    // A rejected one-hot proposal: the target without that token.
    CHECK_CLOSE(residual_distribution(target_p, one_hot(0, 3)), (Vector{0, 0.6f, 0.4f}), 1e-6);
    // Equal distributions leave nothing; rounding may still reject.
    CHECK_CLOSE(residual_distribution(target_p, target_p), target_p, 0);
}

TEST_CASE("accept_token: never if p is 0, always if p is at least q, else as often as p / q") {
    Generator generator(3);
    std::size_t accepted = 0;
    for (int i = 0; i < 10000; ++i) {
        CHECK(accept_token(0, target_p, draft_q, generator));
        CHECK(accept_token(2, target_p, draft_q, generator));
        CHECK_FALSE(accept_token(1, {0.5f, 0, 0.5f}, draft_q, generator));
        accepted += accept_token(1, target_p, draft_q, generator);
    }
    CHECK(double(accepted) / 10000 == doctest::Approx(3.0 / 7).epsilon(0.03));
}

TEST_CASE("proposals are accepted with the probability that acceptance_probability computes") {
    constexpr std::size_t samples = 20000;
    Generator generator(8);
    const std::vector<Vector> drafts = {draft_q, target_p, {0, 0.01f, 0.99f}, one_hot(1, 3)};
    for (const Vector& q : drafts) {
        CAPTURE(q);
        std::size_t accepted = 0;
        for (std::size_t i = 0; i < samples; ++i)
            accepted += accept_token(sample_from(q, generator), target_p, q, generator);
        const double alpha = acceptance_probability(target_p, q);
        const double deviation = std::sqrt(std::abs(alpha * (1 - alpha)) / samples);
        CHECK(std::abs(double(accepted) / samples - alpha) <= 4 * deviation + 1e-12);
    }
}

TEST_CASE("the result has the target's distribution, whatever the draft's is") {
    const Vector p{0.3f, 0.25f, 0.2f, 0.1f, 0.1f, 0.05f};
    const std::vector<std::pair<const char*, Vector>> drafts = {
        {"the target's", p},
        {"similar", {0.25f, 0.3f, 0.15f, 0.15f, 0.1f, 0.05f}},
        {"uniform", xt::ones<Real>({6}) / Real(6)},
        {"mostly wrong", {0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.95f}},
        {"without the most likely token", {0, 0.4f, 0.2f, 0.2f, 0.1f, 0.1f}},
        {"one-hot", one_hot(3, 6)}};
    for (const auto& [draft, q] : drafts) {
        const std::string name = draft;
        CAPTURE(name);
        check_frequencies(first_tokens(p, q, 20000), {p.begin(), p.end()});
    }
}

TEST_CASE("accept_proposal stops at the first rejection, and adds a bonus token if none is") {
    Generator generator(1);
    std::vector<std::size_t> asked;
    const std::vector<Vector> p = {one_hot(4, 6), one_hot(2, 6), one_hot(5, 6), one_hot(1, 6)};
    const auto target = [&](std::size_t k) {
        asked.push_back(k);
        return p.at(k);
    };
    const auto tokens_of = [&](const std::vector<Id>& ids) {
        Proposal proposal{ids, {}};
        for (const Id id : ids) proposal.probabilities.push_back(one_hot(id, 6));
        asked.clear();
        return accept_proposal(proposal, target, generator);
    };
    using Ids = std::vector<Id>;
    using Positions = std::vector<std::size_t>;
    CHECK(tokens_of({4, 2, 5}) == Ids{4, 2, 5, 1});
    CHECK(asked == Positions{0, 1, 2, 3});
    CHECK(tokens_of({4, 0, 5}) == Ids{4, 2});
    CHECK(asked == Positions{0, 1});
    CHECK(tokens_of({0, 2, 5}) == Ids{4});
    CHECK(tokens_of({}) == Ids{4});
    CHECK(asked == Positions{0});
}

TEST_CASE("token_probabilities is the distribution that sample_next_token samples from") {
    const Vector logits{1, 3, 2, 2.5f, -1};
    const SamplingConfig config{.temperature = 0.7f, .top_k = 4, .top_p = 0.9f};
    const Vector p = token_probabilities(logits, {1, 2}, config);
    CHECK_CLOSE(p, softmax(process_logits(logits, {1, 2}, config)), 0);
    Generator generator(2);
    std::vector<std::size_t> counts(5);
    for (int i = 0; i < 20000; ++i)
        ++counts[std::size_t(sample_next_token(logits, {1, 2}, config, generator))];
    check_frequencies(counts, {p.begin(), p.end()});

    SamplingConfig greedy{.temperature = 0};
    CHECK_CLOSE(token_probabilities(logits, {}, greedy), one_hot(1, 5), 0);
    greedy.repetition_penalty = 2;  // 3 becomes 1.5, less than 2.5
    CHECK_CLOSE(token_probabilities(logits, {1}, greedy), one_hot(3, 5), 0);
}

TEST_CASE("expected_tokens_per_step is a geometric sum, as the rule gives it") {
    CHECK(expected_tokens_per_step(0, 4) == 1);
    CHECK(expected_tokens_per_step(1, 4) == 5);
    CHECK(expected_tokens_per_step(0.5, 2) == doctest::Approx(1.75));
    CHECK(expected_tokens_per_step(0.8, 4) == doctest::Approx((1 - std::pow(0.8, 5)) / 0.2));
    Generator generator(4);
    double sum = 0;
    for (int i = 0; i < 10000; ++i) {
        const Proposal proposal = sampled_proposal({draft_q, draft_q, draft_q}, generator);
        const auto target = [&](std::size_t) { return target_p; };
        sum += double(accept_proposal(proposal, target, generator).size());
    }
    CHECK(sum / 10000 == doctest::Approx(expected_tokens_per_step(0.6, 3)).epsilon(0.03));
}

TEST_CASE("speculative sampling names what does not fit") {
    Generator generator(1);
    const Vector two{0.5f, 0.5f};
    const char* sizes =
        "speculative sampling: the draft's distribution has 2 tokens, the target's 3";
    CHECK_THROWS_WITH_AS(residual_distribution(target_p, two), sizes, ValueError);
    CHECK_THROWS_WITH_AS(acceptance_probability(target_p, two), sizes, ValueError);
    CHECK_THROWS_WITH_AS(accept_token(0, target_p, two, generator), sizes, ValueError);
    for (const Id id : {0, 3, -1})
        CHECK_THROWS_WITH_AS(accept_token(id, target_p, {0, 0.5f, 0.5f}, generator),
                             ("speculative sampling: the draft proposes token " + to_text(id) +
                              ", whose probability is 0")
                                 .c_str(),
                             ValueError);
    for (const Id id : {3, -1})
        CHECK_THROWS_WITH_AS(
            one_hot(id, 3),
            ("speculative sampling: there is no token " + to_text(id) + " in a vocabulary of 3")
                .c_str(),
            ValueError);
    CHECK_THROWS_WITH_AS(accept_proposal({{1, 2}, {two}}, {}, generator),
                         "speculative sampling: 2 proposed tokens have 1 distributions",
                         ValueError);
}

TEST_CASE("lookup_ngram: what followed the longest suffix at its last occurrence") {
    using Ids = std::vector<Id>;
    const Ids ids = {1, 2, 3, 9, 8, 2, 3, 4, 5, 3, 6, 7, 1, 2, 3};
    CHECK(lookup_ngram(ids, 3, 4) == Ids{9, 8, 2, 3});  // 1 2 3 occurred at the beginning
    CHECK(lookup_ngram(ids, 5, 4) == Ids{9, 8, 2, 3});  // no longer suffix did
    CHECK(lookup_ngram(ids, 2, 4) == Ids{4, 5, 3, 6});  // 2 3: the later of two
    CHECK(lookup_ngram(ids, 1, 4) == Ids{6, 7, 1, 2});  // 3: the last of three
    CHECK(lookup_ngram(ids, 1, 100) == Ids{6, 7, 1, 2, 3});
    CHECK(lookup_ngram(ids, 3, 0) == Ids{});
    CHECK(lookup_ngram({1, 2, 3}, 3, 4) == Ids{});   // 3 has not occurred
    CHECK(lookup_ngram({7, 7, 7}, 2, 4) == Ids{7});  // the occurrence may overlap the suffix
    CHECK(lookup_ngram({7, 7}, 9, 4) == Ids{7});
    CHECK(lookup_ngram({7}, 3, 4) == Ids{});
    CHECK(lookup_ngram({}, 3, 4) == Ids{});
    CHECK_THROWS_WITH_AS(NgramProposer(10, 0), "n-gram lookup: max_ngram must be at least 1",
                         ValueError);
}

TEST_CASE("NgramProposer returns one-hot distributions of its tokens") {
    Generator generator(1);
    NgramProposer proposer(6, 2);
    const Proposal proposal = proposer.propose({5, 1, 2, 0, 5, 1}, 2, {}, generator);
    CHECK(proposal.ids == std::vector<Id>{2, 0});
    REQUIRE(proposal.probabilities.size() == 2);
    CHECK_CLOSE(proposal.probabilities[0], (Vector{0, 0, 1, 0, 0, 0}), 0);
    CHECK_CLOSE(proposal.probabilities[1], (Vector{1, 0, 0, 0, 0, 0}), 0);
}
