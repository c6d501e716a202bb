// Chapter 22, file 1 of 5: speculative sampling: which proposed tokens are accepted.
#pragma once

#include <functional>

#include "chapters/11_generation/sampling.hpp"

namespace llm {

// A draft: K proposed tokens, and the distribution q that each of them was sampled from. If
// nothing was sampled, as in n-gram lookup or greedy decoding, q is one-hot.
struct Proposal {
    std::vector<Id> ids;                // K
    std::vector<Vector> probabilities;  // K distributions, each (V)

    std::size_t size() const { return ids.size(); }
};

// A distribution in which one token has probability 1: (V). Throws ValueError if the id is not
// in the vocabulary.
Vector one_hot(Id id, std::size_t vocab_size);

// The distribution that chapter 11's sample_next_token samples from: the softmax of the
// processed logits; with temperature 0, one-hot.
Vector token_probabilities(const Vector& logits,              // (V) -> (V)
                           const std::vector<Id>& input_ids,  // the T tokens so far
                           const SamplingConfig& config);

// Speculative sampling. A token x was sampled from the draft's distribution q, but the result
// must have the distribution p of the target model:
//
// - Accept x with probability min(1, p(x) / q(x)).
// - If x is rejected, sample from the residual distribution, max(0, p - q) normalized.
//
// Why the result is distributed as p: token x is proposed and accepted with probability
// q(x) min(1, p(x) / q(x)) = min(p(x), q(x)). The sum of these over all tokens is the
// acceptance probability α, so a proposal is rejected with probability 1 - α. The residual
// distribution is (p(x) - min(p(x), q(x))) / (1 - α), since max(0, p - q) = p - min(p, q) and p
// adds up to 1. Together: min(p(x), q(x)) + (1 - α) (p(x) - min(p(x), q(x))) / (1 - α) = p(x),
// whatever q is.
//
// With one-hot p and q (temperature 0), this accepts the proposed token if it is the target's
// most likely one, and otherwise returns that one.
//
// Sources: "Fast Inference from Transformers via Speculative Decoding" (Leviathan et al.,
// 2023), algorithm 1 and appendix A.1; "Accelerating Large Language Model Decoding with
// Speculative Sampling" (Chen et al., 2023), algorithm 2.

// Whether the proposed token is accepted. Throws ValueError if p and q have different sizes, or
// if q(x) is 0: then x was not sampled from q.
bool accept_token(Id proposed,      // x
                  const Vector& p,  // (V), of the target
                  const Vector& q,  // (V), of the draft
                  Generator& generator);

// The sum of min(p, q): the probability that a token sampled from q is accepted.
double acceptance_probability(const Vector& p,   // (V)
                              const Vector& q);  // (V)

// max(0, p - q), normalized. If no element of p exceeds q, the two are equal up to rounding,
// and the result is p.
Vector residual_distribution(const Vector& p,   // (V) -> (V)
                             const Vector& q);  // (V)

// Accepts proposed tokens up to the first rejection. Returns the accepted ones and one more:
// the token sampled from the residual distribution or, if all were accepted, the bonus token
// from the last p. target(k) is the distribution p of position k, 0 <= k <= K, given the first
// k proposed tokens; it is called in this order, and only for positions that are reached.
std::vector<Id> accept_proposal(const Proposal& proposal,
                                const std::function<Vector(std::size_t)>& target,
                                Generator& generator);

// The tokens that a step returns on average if each of K proposals is accepted with
// probability α, independently: (1 - α^(K+1)) / (1 - α), or K + 1 if α is 1. Source: Leviathan
// et al., equation 1.
double expected_tokens_per_step(double acceptance,          // α
                                std::size_t num_proposed);  // K

}  // namespace llm
