// Chapter 21: the steps of the program about the scheduler and the engine.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/15_fast/fast_model.hpp"

namespace llm {

void static_and_continuous(std::size_t max_sequences);
void long_prompt(std::size_t max_step_tokens);
void no_page_left(std::size_t num_pages);
void many_texts(const FastModel& model, const Tokenizer& tokenizer);

}  // namespace llm
