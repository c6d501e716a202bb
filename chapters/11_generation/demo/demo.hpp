// Chapter 11, program: the parts of the demo.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/11_generation/generation.hpp"

namespace llm {

// Tokens as they are printed: ▁ for a space.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const Id> ids);

// sampling.cpp: the next word after a text: softmax, temperature and top-p by hand.
void show_next_word(const Model& model, const Tokenizer& tokenizer, const std::string& text);

// sampling.cpp: the most likely next tokens after a text, their probabilities with
// temperature, top-k, top-p, min-p and the repetition penalty, and 1000 samples.
void show_sampling(const Model& model, const Tokenizer& tokenizer, const std::string& text,
                   const SamplingConfig& config, Generator& generator);

// cache.cpp: the tensors of prefill and decode, a wrong mask, and the FLOPs per token with
// and without a KV cache; for --measure, the time per token on this machine.
void show_cache(const Model& model, const std::vector<Id>& ids);
void measure_cache(const Model& model);

// inspection.cpp: for a generated text, the probability of each new token, and for the
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
