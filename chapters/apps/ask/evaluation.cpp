#include "chapters/apps/ask/evaluation.hpp"

#include <algorithm>
#include <set>

#include "common/files/json_lines.hpp"

namespace llm::ask {
namespace {

std::string section_of(const Passage& passage) { return passage.page + "#" + passage.anchor; }

}  // namespace

std::vector<TestQuestion> read_questions(const std::string& file,
                                         const std::vector<Passage>& passages) {
    std::set<std::string> sections;
    for (const Passage& passage : passages) sections.insert(section_of(passage));
    std::vector<TestQuestion> questions;
    for (const JsonFile& json : read_json_lines(file)) {
        TestQuestion question{json.text("question"), {}};
        for (const std::vector<std::string>& answer : json.text_lists("answers"))
            question.answers.push_back(answer.front());
        if (question.answers.empty()) json.reject("answers", "is empty");
        for (const std::string& answer : question.answers)
            if (sections.count(answer) == 0)
                json.reject("answers", "names " + answer + ", which has no passage");
        questions.push_back(std::move(question));
    }
    return questions;
}

std::vector<double> answered_at(std::size_t k, const std::vector<TestQuestion>& questions,
                                const std::vector<Passage>& passages,
                                const std::function<Ranking(const std::string&)>& search) {
    std::vector<double> scores;
    for (const TestQuestion& question : questions) {
        const Ranking ranking = one_of_each_section(passages, search(question.question));
        const auto end = ranking.begin() + std::ptrdiff_t(std::min(k, ranking.size()));
        scores.push_back(std::any_of(ranking.begin(), end, [&](std::size_t number) {
            const auto& answers = question.answers;
            return std::count(answers.begin(), answers.end(), section_of(passages[number])) > 0;
        }));
    }
    return scores;
}

}  // namespace llm::ask
