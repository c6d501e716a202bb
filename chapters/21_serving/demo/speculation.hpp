// Speculative decoding: the rule by hand, proposals of n-grams, and drafts for the shipped
// model.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/21_serving/mtp_draft.hpp"

namespace llm {

void speculative_sampling_by_hand(Generator& generator);
void ngram_proposals();
void one_verification_step(const FastModel& model, const Tokenizer& tokenizer);
void tokens_per_step(const FastModel& model, const FastMtpModule& mtp,
                     const Tokenizer& tokenizer);
void acceptance_by_temperature(const FastModel& model, const FastMtpModule& mtp,
                               const Tokenizer& tokenizer);

}  // namespace llm
