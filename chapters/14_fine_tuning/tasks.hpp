// Chapter 14: questions with verifiable answers, made by rules.
#pragma once

#include <string>
#include <vector>

namespace llm {

struct Question {
    std::string prompt, answer;  // "12+34=", "46"
};

// All additions a+b= and subtractions a-b= with 0 <= a, b, a + b or a - b, all below the limit.
std::vector<Question> addition_questions(int limit = 100);
std::vector<Question> subtraction_questions(int limit = 100);
// "reverse abc=", "cba", for words of ASCII letters.
std::vector<Question> reversal_questions(const std::vector<std::string>& words);

// Whether a question belongs to the held-out split, of about percent % of all questions. It
// depends on the prompt alone (the FNV-1a hash), so that a question never changes sides when
// others are added.
bool is_held_out(const Question& question, unsigned percent = 10);

// The reward of GRPO: 1 if the text is the answer, apart from spaces and line ends around it,
// otherwise 0.
double exact_match_reward(const Question& question, const std::string& text);

}  // namespace llm
