// Chapter 11, steps of the program: the next word, and how it is sampled.
#pragma once

#include <string>

#include "chapters/09_full_model/model.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/11_generation/sampling.hpp"

namespace llm {

// The next word after a text: softmax, temperature and top-p by hand.
void show_next_word(const Model& model, const Tokenizer& tokenizer, const std::string& text);

// The most likely next tokens after a text, their probabilities with
// temperature, top-k, top-p, min-p and the repetition penalty, and 1000 samples.
void show_sampling(const Model& model, const Tokenizer& tokenizer, const std::string& text,
                   const SamplingConfig& config, Generator& generator);

}  // namespace llm
