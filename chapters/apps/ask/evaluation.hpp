// How often the search finds a section that answers a question.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chapters/apps/ask/search.hpp"

namespace llm::ask {

// A question, and the sections that answer it: "05_gqa.md#formula".
struct TestQuestion {
    std::string question;
    std::vector<std::string> answers;
};
// JSON Lines of {"question": ..., "answers": [...]}; other members are left alone. Throws
// FileError, which names the line, also if a section has no passage.
std::vector<TestQuestion> read_questions(const std::string& file,
                                         const std::vector<Passage>& passages);

// For each question 1 or 0: is a section that answers it among the first k? (With several
// answers, one is enough.)
std::vector<double> answered_at(std::size_t k, const std::vector<TestQuestion>& questions,
                                const std::vector<Passage>& passages,
                                const std::function<Ranking(const std::string&)>& search);

}  // namespace llm::ask
