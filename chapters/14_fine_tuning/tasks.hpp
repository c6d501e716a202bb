// Chapter 14, file 8 of 13: questions with verifiable answers, made by rules.
#pragma once

#include <string>

namespace llm {

struct Question {
    std::string prompt, answer;  // "abc=", "cba"
};

// Whether a question belongs to the held-out split, of about percent % of all questions. It
// depends on the prompt alone (the FNV-1a hash), so that a question never changes sides when
// others are added.
bool is_held_out(const Question& question, unsigned percent = 10);

// The reward of GRPO: 1 if the text is the answer, apart from spaces and line ends around it,
// otherwise 0.
double exact_match_reward(const Question& question, const std::string& text);

}  // namespace llm
