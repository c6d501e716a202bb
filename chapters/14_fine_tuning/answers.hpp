// Chapter 14, file 12 of 13: questions with verifiable answers, and counting the correct ones.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/14_fine_tuning/evaluation.hpp"
#include "common/numbers/random.hpp"

namespace llm {

// A question made by a rule.
struct Question {
    std::string prompt, answer;  // "abc=", "cba"
};

// Whether a question belongs to the held-out split, of about percent % of all questions. It
// depends on the prompt alone (the FNV-1a hash), so that a question never changes sides when
// others are added.
bool is_held_out(const Question& question, unsigned percent = 10);

// The reward of GRPO: 1 if the text is the answer, apart from spaces and line ends around it,
// otherwise 0.
double exact_match_reward(const std::string& answer, const std::string& text);

// What can be asked: all messages of a conversation before its last answer, and that answer.
struct AskedQuestion {
    std::vector<Message> messages;
    std::string answer, task;
};
AskedQuestion question_of(const Conversation& conversation);

// The answers of a model to questions, computed in parallel, each with a generator of its own.
// At temperature 0 an answer is the most likely token at each step. An answer that has not
// ended after max_new_tokens is empty, and so never correct.
struct AnswerConfig {
    Real temperature = 0;
    std::size_t max_new_tokens = 48;
};
std::vector<std::string> answers_of(const Model& model, const ChatEncoder& encoder,
                                    const std::vector<AskedQuestion>& questions,
                                    const AnswerConfig& config, Generator& generator);

// How many answers equal those expected, by task.
std::map<std::string, Score> score_answers(const std::vector<AskedQuestion>& questions,
                                           const std::vector<std::string>& answers);

}  // namespace llm
