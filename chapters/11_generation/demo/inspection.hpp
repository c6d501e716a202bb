// Chapter 11, steps of the program: what the model computes for a generated text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/11_generation/sampling.hpp"

namespace llm {

// Tokens as they are printed: ▁ for a space.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const Id> ids);

// For a generated text, the probability of each new token, and for the
// token at one position the attention weights and the logit lens of every layer. With details,
// also the most likely tokens at each new position, before and after the sampling options, and
// the attention weights of the whole text.
struct Inspection {
    std::size_t prompt_len, position;
    bool with_details;
};
void inspect_generation(const Model& model, const Tokenizer& tokenizer,
                        const std::vector<Id>& ids, const Inspection& inspection,
                        const SamplingConfig& sampling);

}  // namespace llm
