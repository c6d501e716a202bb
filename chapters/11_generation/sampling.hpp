// Chapter 11, file 1 of 7: from logits to the next token.
#pragma once

#include <vector>

#include "chapters/01_masking/masking.hpp"
#include "common/numbers/random.hpp"

namespace llm {

// Softmax of the logits of one position: the probability of each token of the vocabulary.
Vector softmax(const Vector& logits);  // (V) -> (V)

// The functions below process the logits of one position, as Hugging Face's LogitsProcessor
// classes do. A token that must not be sampled gets -inf, which is a probability of 0 after the
// softmax. Parameters out of range throw ValueError, as in Hugging Face's library.

// Divides by the temperature, which must be above 0: below 1 the distribution gets sharper,
// above 1 flatter. Source: "A Learning Algorithm for Boltzmann Machines" (Ackley et al., 1985);
// TemperatureLogitsWarper.
Vector apply_temperature(const Vector& logits, Real temperature);  // (V) -> (V)

// Keeps the k most likely tokens, k >= 1; of equal logits the first (TopKLogitsWarper keeps all
// that equal the k-th). Source: "Hierarchical Neural Story Generation" (Fan et al., 2018),
// section 5.4.
Vector apply_top_k(const Vector& logits, std::size_t top_k);  // (V) -> (V)

// Keeps the smallest set of most likely tokens whose probabilities add up to top_p or more, and
// at least one token. 0 <= top_p <= 1. Source: "The Curious Case of Neural Text Degeneration"
// (Holtzman et al., 2020), section 3.1; TopPLogitsWarper.
Vector apply_top_p(const Vector& logits, Real top_p);  // (V) -> (V)

// Keeps the tokens whose probability is at least min_p times the highest one. 0 <= min_p <= 1.
// Source: "Turning Up the Heat: Min-p Sampling" (Nguyen et al., 2024), section 3;
// MinPLogitsWarper.
Vector apply_min_p(const Vector& logits, Real min_p);  // (V) -> (V)

// Penalizes tokens that occur in input_ids: positive logits are divided by the penalty, which
// must be above 0, and negative ones are multiplied by it. Throws ValueError if an id is not in
// the vocabulary. Source: "CTRL" (Keskar et al., 2019), section 4.1, for positive logits;
// RepetitionPenaltyLogitsProcessor.
Vector apply_repetition_penalty(const Vector& logits,              // (V) -> (V)
                                const std::vector<Id>& input_ids,  // T
                                Real penalty);

// Greedy decoding: the token with the largest logit, of equal ones the first. Throws
// ValueError if all logits are -inf, or if one is +inf or NaN.
Id argmax_token(const Vector& logits);  // (V)

// Samples a token from a distribution, as torch.multinomial with num_samples=1, by inverse
// transform sampling. Throws ValueError if all probabilities are 0 (PyTorch: RuntimeError).
// Source: llama2.c, sample_mult.
Id sample_from(const Vector& probabilities, Generator& generator);  // (V)

// Samples a token from the softmax of the logits. Throws ValueError as argmax_token does.
Id sample(const Vector& logits, Generator& generator);  // (V)

// The sampling parameters of Hugging Face's GenerationConfig.
struct SamplingConfig {
    Real temperature = 1;   // 0: greedy decoding (Hugging Face: do_sample=False)
    std::size_t top_k = 0;  // 0: off
    Real top_p = 1;         // 1: off
    Real min_p = 0;         // 0: off
    Real repetition_penalty = 1;
};

// Applies the functions above in Hugging Face's order: repetition penalty, temperature, top-k,
// top-p, min-p; with temperature 0 the first one only. Throws ValueError as argmax_token does.
// Source: LogitsProcessorList.
Vector process_logits(const Vector& logits,              // (V) -> (V)
                      const std::vector<Id>& input_ids,  // the T tokens so far
                      const SamplingConfig& config);

// Processes the logits, then samples; with temperature 0, greedy decoding.
Id sample_next_token(const Vector& logits,              // (V)
                     const std::vector<Id>& input_ids,  // the T tokens so far
                     const SamplingConfig& config, Generator& generator);

}  // namespace llm
