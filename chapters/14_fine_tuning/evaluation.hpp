// Chapter 14, file 11 of 13: how good is a model, and how sure is that?
#pragma once

#include <string>
#include <vector>

#include "common/numbers/random.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// How many answers are correct.
struct Score {
    std::size_t num_correct = 0, num_questions = 0;
};

struct Interval {
    double low, high;
};

// The 95 % confidence interval of a fraction of n independent questions, which stays within
// 0 and 1 and is not empty for 0 or n correct ones. Source: Wilson, 1927.
Interval wilson_interval(const Score& score);

// pass@k: the probability that at least one of k samples is correct, estimated without bias
// from n >= k samples of which some are correct: 1 - C(n - num_correct, k) / C(n, k). Throws
// ValueError unless num_correct <= n and 1 <= k <= n. Source: "Evaluating Large Language Models
// Trained on Code" (Chen et al., 2021), equation 1.
double pass_at_k(std::size_t n, std::size_t num_correct, std::size_t k);

// Two models answer the same N questions: the mean of second - first, and the 95 % interval of
// that mean over N questions sampled with replacement, many times. Pairs are drawn, so that a
// hard question is hard for both. Throws ValueError if there are no scores or the sizes differ.
// Source: "Statistical Significance Tests for Machine Translation Evaluation" (Koehn, 2004).
struct PairedDifference {
    double mean;
    Interval interval;
};
PairedDifference paired_bootstrap(const Vector& first,   // (N)
                                  const Vector& second,  // (N)
                                  Generator& generator, std::size_t num_resamples = 2000);

// Multiple choice without generation: the choice whose text is most probable after the
// question. The sum of log-probabilities prefers short choices; per_token divides it by their
// number. Throws ValueError if there are no choices, the sizes differ or a length is 0. Source:
// lm-evaluation-harness, acc and acc_norm (which divides by bytes).
enum class ChoiceScore { sum, per_token };
std::size_t most_likely_choice(const Vector& log_probs,                  // (K)
                               const std::vector<std::size_t>& lengths,  // K: tokens
                               ChoiceScore choice_score);

// Which held-out texts occur in the training texts, apart from capitals, signs and spaces: what
// a model may have memorized. A text occurs if its words do, one after the other.
std::vector<bool> contaminated(const std::vector<std::string>& held_out,
                               const std::vector<std::string>& training);

}  // namespace llm
