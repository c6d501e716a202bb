#include "chapters/22_speculation/exercise.hpp"

namespace exercise {

// Exercise 22.1 — min(p, q) is 0.2 + 0.1 + 0.2 + 0.1. What the target has beyond it is 0.3 of
// the first token and 0.1 of the second.
Vector predicted_acceptance() { return {Real(0.6), Real(0.75)}; }

// Exercise 22.2 — 1 + 1/2 + 1/4 + 1/8 tokens, in the time of 1 + 3/8 steps.
Vector predicted_speed() { return {Real(1.875), Real(1.364)}; }

// Exercise 22.3 — a step gives 1 + alpha + ... + alpha^K tokens, and costs 1 + draft_cost K.
std::size_t best_num_proposals(double alpha, double draft_cost, std::size_t max_proposals) {
    std::size_t best = 0;
    double best_speed = 1;
    for (std::size_t K = 1; K <= max_proposals; ++K) {
        const double speed = expected_tokens_per_step(alpha, K) / (1 + draft_cost * double(K));
        if (speed > best_speed) best = K, best_speed = speed;
    }
    return best;
}

// Exercise 22.4 — the draft's tokens were sampled at the temperature, so q must be taken at it,
// too: the rule divides by the probability that a token was proposed with.
std::vector<Id> verify(const std::vector<Id>& proposed, const Matrix& target_logits,
                       const Matrix& draft_logits, Real temperature, Generator& generator) {
    const auto target = [&](std::size_t k) {
        const Vector scaled = xt::view(target_logits, k) / temperature;  // (V)
        return softmax(scaled);
    };
    Proposal proposal{proposed, {}};
    for (std::size_t k = 0; k < proposed.size(); ++k) {
        const Vector scaled = xt::view(draft_logits, k) / temperature;  // (V)
        proposal.probabilities.push_back(softmax(scaled));
    }
    return accept_proposal(proposal, target, generator);
}

// Exercise 22.5 — after a rejection, the rest of the procedure must produce the residual
// distribution: it is the target of the next candidate.
Id accept_one_of(const std::vector<Id>& candidates, const Vector& p, const Vector& q,
                 Generator& generator) {
    Vector target = p;  // (V)
    for (const Id candidate : candidates) {
        if (accept_token(candidate, target, q, generator)) return candidate;
        const Vector rest = residual_distribution(target, q);
        target = rest;
    }
    return sample_from(target, generator);
}

}  // namespace exercise
