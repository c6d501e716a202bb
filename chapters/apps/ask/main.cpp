// ./learn ask QUESTION — Where does this book answer a question? Shows the passages of its
// pages that have the rarest of the question's words, with chapter 25's BM25.
#include "chapters/apps/ask/evaluation.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

namespace {

void show_answers(const ask::BookIndex& book, const std::string& question, std::size_t count) {
    const Ranking ranking =
        ask::one_of_each_section(book.passages(), book.by_words(question, 100));
    if (ranking.empty()) return say("No page has a word of this question.");
    for (std::size_t rank = 0; rank < std::min(count, ranking.size()); ++rank) {
        const ask::Passage& passage = book.passages()[ranking[rank]];
        step(passage.headings);
        say("docs/" + passage.page + "#" + passage.anchor);
        say(passage.text);
    }
}

// How many of the questions are answered among the first sections: percentages with 95 %
// intervals.
void evaluate(const ask::BookIndex& book, const std::string& file, std::uint32_t seed) {
    const std::vector<ask::TestQuestion> questions = ask::read_questions(file, book.passages());
    step("Answered by one of the first sections: " + to_text(questions.size()) + " questions");
    const ask::AnswerRanks ranks = ask::answer_ranks(
        questions, book.passages(),
        [&](const std::string& question) { return book.by_words(question, 100); });
    std::vector<TableRow> rows;
    for (const std::size_t k : {1, 3, 10}) {
        const auto [mean, interval] = bootstrap_mean(ask::answered_at(k, ranks), seed);
        rows.push_back({to_text(k), fixed(100 * mean, 0),
                        fixed(100 * interval.low, 0) + " to " + fixed(100 * interval.high, 0)});
    }
    show_table({"first", "% answered", "95 % interval"}, rows);
}

}  // namespace

int main(int argc, char** argv) {
    std::string question, test;
    std::size_t count = 3;
    Options options("ask", "Where does this book answer a question?");
    options.text("--question", question, "in English, in quotes");
    options.count("--count", count, 1, 20, "sections to show");
    options.path("--test", test, "JSON Lines of questions with the sections that answer them");
    return options.run(argc, argv, [&] {
        require(!test.empty() || !question.empty(),
                "--question is missing: ./learn ask \"why divide by the "
                "root of D?\"");
        const ask::BookIndex book(ask::read_passages(asset("../docs")));
        if (!test.empty()) return evaluate(book, test, options.seed());
        show_answers(book, question, count);
    });
}
