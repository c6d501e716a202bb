#include "chapters/22_speculation/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 22.1 — predict: the target's probabilities of four tokens are 0.5, 0.2, 0.2 and 0.1,
// the draft's 0.2, 0.1, 0.6 and 0.1. How probable is it that a proposal is accepted? If it is
// rejected, how probable is it that the first token takes its place?
Vector predicted_acceptance() {
    TODO("predicted_acceptance");
    // return {?, ?};
}

// Exercise 22.2 — predict: each proposal is accepted with probability 1/2, and K is 3. How many
// tokens does a step give on average? A step of the draft costs 1/8 of a step of the target:
// how many times as fast is the text? (Two decimals are enough.)
Vector predicted_speed() {
    TODO("predicted_speed");
    // return {?, ?};
}

// Exercise 22.3 — write best_num_proposals. With K = 0 there is no draft, and the speed is 1.
std::size_t best_num_proposals([[maybe_unused]] double alpha,
                               [[maybe_unused]] double draft_cost,
                               [[maybe_unused]] std::size_t max_proposals) {
    TODO("best_num_proposals");
}

// Exercise 22.4 — find the bug. With a temperature of 1 the text has the target's distribution.
// With 0.5 it has not: some tokens come too often.
std::vector<Id> verify(const std::vector<Id>& proposed, const Matrix& target_logits,
                       const Matrix& draft_logits, Real temperature, Generator& generator) {
    const auto target = [&](std::size_t k) {
        const Vector scaled = xt::view(target_logits, k) / temperature;  // (V)
        return softmax(scaled);
    };
    Proposal proposal{proposed, {}};
    for (std::size_t k = 0; k < proposed.size(); ++k) {
        const Vector logits = xt::view(draft_logits, k);  // (V)
        proposal.probabilities.push_back(softmax(logits));
    }
    return accept_proposal(proposal, target, generator);
}

// Exercise 22.5 — write accept_one_of: several tokens were proposed for the same position. With
// one candidate it is the rule of the chapter; with none, a sample from p.
Id accept_one_of([[maybe_unused]] const std::vector<Id>& candidates,
                 [[maybe_unused]] const Vector& p, [[maybe_unused]] const Vector& q,
                 [[maybe_unused]] Generator& generator) {
    TODO("accept_one_of");
}

}  // namespace exercise
