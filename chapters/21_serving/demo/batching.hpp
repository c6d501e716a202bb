// Chapter 21: the steps of the program about the scheduler and the engine.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/21_serving/simulation/schedule.hpp"

namespace llm {

void static_and_continuous(std::size_t max_sequences);
void long_prompt(std::size_t max_step_tokens);
void no_page_left(std::size_t num_pages);
// Each step is one of the program, so that --only N shows step N of the schedule.
void show_schedule(const Scheduler& scheduler, const std::vector<SimulatedRequest>& requests);
void many_texts(const FastModel& model, const Tokenizer& tokenizer, std::uint32_t seed);

}  // namespace llm
