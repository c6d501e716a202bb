#include "chapters/22_speculation/speculative_sampling.hpp"

namespace llm {
namespace {

void check_sizes(const Vector& p, const Vector& q) {
    require(p.size() == q.size(),
            "speculative sampling: the draft's distribution has {} tokens, the target's {}",
            q.size(), p.size());
}

}  // namespace

Vector one_hot(Id id, std::size_t vocab_size) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocab_size,
            "speculative sampling: there is no token {} in a vocabulary of {}", id, vocab_size);
    Vector probabilities = xt::zeros<Real>({vocab_size});
    probabilities(static_cast<std::size_t>(id)) = 1;
    return probabilities;
}

Vector token_probabilities(const Vector& logits, const std::vector<Id>& input_ids,
                           const SamplingConfig& config) {
    const Vector scores = process_logits(logits, input_ids, config);
    return config.temperature == 0 ? one_hot(argmax_token(scores), scores.size())
                                   : softmax(scores);
}

bool accept_token(Id proposed, const Vector& p, const Vector& q, Generator& generator) {
    check_sizes(p, q);
    const auto x = static_cast<std::size_t>(proposed);
    require(proposed >= 0 && x < q.size() && q(x) > 0,
            "speculative sampling: the draft proposes token {}, whose probability is 0",
            proposed);
    // A uniform number is below p / q with probability min(1, p / q).
    return double(generator.next_uniform()) * double(q(x)) < double(p(x));
}

double acceptance_probability(const Vector& p, const Vector& q) {
    check_sizes(p, q);
    double sum = 0;
    for (std::size_t x = 0; x < p.size(); ++x) sum += std::min(p(x), q(x));
    return sum;
}

Vector residual_distribution(const Vector& p, const Vector& q) {
    check_sizes(p, q);
    Vector residual = xt::zeros<Real>({p.size()});  // (V)
    double sum = 0;
    for (std::size_t x = 0; x < p.size(); ++x) {
        residual(x) = std::max(Real(0), p(x) - q(x));
        sum += residual(x);
    }
    return sum > 0 ? Vector(residual / Real(sum)) : p;
}

std::vector<Id> accept_proposal(const Proposal& proposal,
                                const std::function<Vector(std::size_t)>& target,
                                Generator& generator) {
    require(proposal.probabilities.size() == proposal.size(),
            "speculative sampling: {} proposed tokens have {} distributions", proposal.size(),
            proposal.probabilities.size());
    std::vector<Id> tokens;
    for (std::size_t k = 0; k < proposal.size(); ++k) {
        const Vector p = target(k);                   // (V)
        const Vector& q = proposal.probabilities[k];  // (V)

        // A rejection voids the later proposals: they continue another text.
        if (!accept_token(proposal.ids[k], p, q, generator)) {
            tokens.push_back(sample_from(residual_distribution(p, q), generator));
            return tokens;
        }
        tokens.push_back(proposal.ids[k]);
    }

    // All are accepted: the same forward pass has computed the distribution of the next token.
    tokens.push_back(sample_from(target(proposal.size()), generator));
    return tokens;
}

double expected_tokens_per_step(double acceptance, std::size_t num_proposed) {
    // Token k is there if all k before it were accepted: 1 + α + α² + ... + α^K.
    double sum = 0, all_accepted = 1;
    for (std::size_t k = 0; k <= num_proposed; ++k, all_accepted *= acceptance)
        sum += all_accepted;
    return sum;
}

}  // namespace llm
