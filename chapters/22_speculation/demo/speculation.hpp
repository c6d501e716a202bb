// Chapter 22: the rule by hand, one verification step, and drafts for the shipped model.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/22_speculation/mtp_draft.hpp"

namespace llm {

void speculative_sampling_by_hand(Generator& generator);

// What one_verification_step verifies: K tokens that the first layers of the model propose.
struct VerificationDemo {
    std::string prompt = "Go up to Jerusalem, and";
    std::size_t draft_layers = 2, num_proposals = 4;
};
// The ids of the prompt. Throws ValueError if they and the proposals are too long for the
// model.
std::vector<Id> prompt_ids(const FastModel& model, const Tokenizer& tokenizer,
                           const VerificationDemo& demo);
void one_verification_step(const FastModel& model, const Tokenizer& tokenizer,
                           const VerificationDemo& demo, const std::vector<Id>& prompt);
void ngram_proposals();
void tokens_per_step(const FastModel& model, const FastMtpModule& mtp,
                     const Tokenizer& tokenizer);
void acceptance_by_temperature(const FastModel& model, const FastMtpModule& mtp,
                               const Tokenizer& tokenizer);

}  // namespace llm
