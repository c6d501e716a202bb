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
        TestQuestion question{json.text("question"), {}, ""};
        if (json.has("contains")) question.contains = json.text("contains");
        for (const std::vector<std::string>& answer : json.text_lists("answers")) {
            if (answer.size() != 1) json.reject("answers", "is not a list of sections");
            question.answers.push_back(answer[0]);
        }
        if (question.answers.empty()) json.reject("answers", "is empty");
        for (const std::string& answer : question.answers)
            if (sections.count(answer) == 0)
                json.reject("answers", "names " + answer + ", which has no passage");
        questions.push_back(std::move(question));
    }
    return questions;
}

AnswerRanks answer_ranks(const std::vector<TestQuestion>& questions,
                         const std::vector<Passage>& passages,
                         const std::function<Ranking(const std::string&)>& search) {
    AnswerRanks ranks;
    for (const auto& [question, answers, contains] : questions) {
        std::optional<std::size_t>& rank = ranks.emplace_back();
        const Ranking ranking = one_of_each_section(passages, search(question));
        for (std::size_t i = 0; i < ranking.size() && !rank; ++i)
            if (std::count(answers.begin(), answers.end(), section_of(passages[ranking[i]])) >
                0)
                rank = i + 1;
    }
    return ranks;
}

std::vector<SearchMethod> search_methods(const BookIndex& book) {
    constexpr std::size_t depth = 100;
    using Question = const std::string&;
    return {{"words (BM25)", [&](Question q) { return ranking_of(book.by_words(q, depth)); }},
            {"vectors", [&](Question q) { return ranking_of(book.by_vectors(q, depth)); }},
            {"joined", [&](Question q) { return ranking_of(book.joined(q, depth)); }}};
}

std::vector<double> answered_at(std::size_t k, const AnswerRanks& ranks) {
    std::vector<double> scores;
    for (const std::optional<std::size_t>& rank : ranks) scores.push_back(rank && *rank <= k);
    return scores;
}

}  // namespace llm::ask
