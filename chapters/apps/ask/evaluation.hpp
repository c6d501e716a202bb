// How often the search finds a section that answers a question.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chapters/apps/ask/search.hpp"

namespace llm::ask {

// A question, and the sections that answer it: "05_gqa.md#formula". Of some questions, a word
// or a number that a right answer contains.
struct TestQuestion {
    std::string question;
    std::vector<std::string> answers;
    std::string contains;
};
// JSON Lines of {"question": ..., "answers": [...], "contains": ...}; "contains" may be
// missing, other members are left alone. Throws FileError, which names the line, also if a
// section has no passage.
std::vector<TestQuestion> read_questions(const std::string& file,
                                         const std::vector<Passage>& passages);

// For each question, the rank from 1 of the first section that answers it; none if the search
// did not find one.
using AnswerRanks = std::vector<std::optional<std::size_t>>;
AnswerRanks answer_ranks(const std::vector<TestQuestion>& questions,
                         const std::vector<Passage>& passages,
                         const std::function<Ranking(const std::string&)>& search);

// Searches of the book to compare: by words, by vectors, by both.
struct SearchMethod {
    std::string name;
    std::function<Ranking(const std::string&)> search;
};
std::vector<SearchMethod> search_methods(const BookIndex& book);

// For each question 1 or 0: is a section that answers it among the first k?
std::vector<double> answered_at(std::size_t k, const AnswerRanks& ranks);

}  // namespace llm::ask
