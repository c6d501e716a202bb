#include "chapters/apps/ask/commands.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "chapters/models/gguf/gguf_export.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"

namespace llm::ask {
namespace {

constexpr std::size_t search_depth = 100;

std::string address_of(const Passage& passage) {
    return "docs/" + passage.page + "#" + passage.anchor;
}

// The numbers of the best passages, one of each section.
Ranking best_sections(const BookIndex& book, const std::string& question, std::size_t count) {
    Ranking sections =
        one_of_each_section(book.passages(), ranking_of(book.joined(question, search_depth)));
    sections.resize(std::min(count, sections.size()));
    return sections;
}

// The rank and the score of each passage that was found, by its number.
using RankAndScore = std::array<std::string, 2>;
std::map<std::size_t, RankAndScore> ranked(const BookIndex::Found& found, int decimals) {
    std::map<std::size_t, RankAndScore> ranks;
    for (const auto& [number, score] : found)
        ranks[number] = {to_text(ranks.size() + 1), fixed(score, decimals)};
    return ranks;
}
// Those of one passage, or of none.
RankAndScore cells_of(const std::map<std::size_t, RankAndScore>& ranks, std::size_t number) {
    const auto found = ranks.find(number);
    return found == ranks.end() ? RankAndScore{"-", "-"} : found->second;
}

std::string text_of(const BookIndex& book, const Ranking& sections) {
    std::string text;
    for (const std::size_t number : sections) {
        const Passage& passage = book.passages()[number];
        text += (text.empty() ? "" : "\n\n") + passage.headings + "\n" + passage.text;
    }
    return text;
}

// "61 (50 to 73)": a mean in percent and its 95 % interval.
std::string percent(const PairedDifference& value) {
    return fixed(100 * value.mean, 0) + " (" + fixed(100 * value.interval.low, 0) + " to " +
           fixed(100 * value.interval.high, 0) + ")";
}

constexpr std::array<std::size_t, 3> depths = {1, 3, 10};

// A row of a table: the share of questions that are answered among the first 1, 3 and 10
// sections, less that of another method, if there is one.
TableRow recall_row(const std::string& name, const AnswerRanks& ranks, const AnswerRanks* less,
                    std::uint32_t seed) {
    TableRow row = {name};
    for (const std::size_t k : depths) {
        std::vector<double> answered = answered_at(k, ranks);
        if (less) {
            const std::vector<double> others = answered_at(k, *less);
            for (std::size_t n = 0; n < answered.size(); ++n) answered[n] -= others[n];
        }
        row.push_back(percent(bootstrap_mean(answered, seed)));
    }
    return row;
}

std::string one_line(std::string text, std::size_t longest) {
    for (char& c : text)
        if (c == '\n') c = ' ';
    return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

}  // namespace

void show_sections(const BookIndex& book, const std::string& question, std::size_t count) {
    for (const std::size_t number : best_sections(book, question, count)) {
        const Passage& passage = book.passages()[number];
        step(passage.headings);
        say(address_of(passage));
        say(passage.text);
    }
}

void show_scores(const BookIndex& book, const std::string& question, std::size_t count) {
    const std::size_t all = book.passages().size();
    const BookIndex::Found by_words = book.by_words(question, all);
    const auto words = ranked(by_words, 1), vectors = ranked(book.by_vectors(question, all), 2);
    const Ranking sections = best_sections(book, question, count);
    std::vector<TableRow> rows;
    for (const std::size_t number : sections) {
        TableRow row = {to_text(rows.size() + 1)};
        for (const auto* ranks : {&words, &vectors})
            for (const std::string& cell : cells_of(*ranks, number)) row.push_back(cell);
        row.push_back(book.passages()[number].headings);
        rows.push_back(row);
    }
    step("The best sections, by words and by vectors");
    if (by_words.empty())
        say("No word of the question is in the book: vectors alone have found these.");
    show_table({"joined", "by words", "BM25", "by vectors", "cosine", "section"}, rows);
    step("How they begin");
    for (const std::size_t number : sections)
        show(address_of(book.passages()[number]), beginning_of(book.passages()[number]));
}

void show_answer(const BookIndex& book, const chat::ChatModel& model,
                 const std::string& question, std::size_t count, const AnswerOptions& options) {
    const Ranking sections = best_sections(book, question, count);
    step(question);
    answer_question(model, question, text_of(book, sections), options,
                    [](const std::string& text) { write_text(text); });
    end_text();
    step("What the model was given, as much of it as fits");
    for (const std::size_t number : sections) say(address_of(book.passages()[number]));
}

void evaluate_search(const BookIndex& book, const std::string& file, std::uint32_t seed) {
    const std::vector<TestQuestion> questions = read_questions(file, book.passages());
    step("Answered by one of the first sections: " + to_text(questions.size()) + " questions");
    std::vector<TableRow> rows;
    std::vector<AnswerRanks> ranks;
    for (const auto& [name, search] : search_methods(book)) {
        ranks.push_back(answer_ranks(questions, book.passages(), search));
        rows.push_back(recall_row(name, ranks.back(), nullptr, seed));
    }
    rows.push_back(recall_row("joined - words", ranks.back(), &ranks.front(), seed));
    show_table({"% answered (95 % interval)", "first", "first 3", "first 10"}, rows);
}

namespace {

// What the search finds for each question.
std::vector<std::string> found_texts(const BookIndex& book,
                                     const std::vector<TestQuestion>& questions,
                                     const std::string& file, std::size_t count) {
    std::vector<std::string> found;
    for (const TestQuestion& question : questions) {
        if (question.contains.empty())
            throw FileError(file +
                            ": a question lacks \"contains\", by which a model's "
                            "answers are judged: " +
                            question.question);
        found.push_back(text_of(book, best_sections(book, question.question, count)));
    }
    return found;
}

}  // namespace

void evaluate_answers(const BookIndex& book, const chat::ChatModel& model,
                      const std::string& file, std::size_t count,
                      const AnswerOptions& options) {
    const std::vector<TestQuestion> questions = read_questions(file, book.passages());
    const std::size_t N = questions.size();
    const std::vector<std::string> found = found_texts(book, questions, file, count);
    std::vector<std::size_t> right(3), given(3);
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < N; ++n) {
        const std::array<std::string, 3> texts = {"", found[n], found[(n + 1) % N]};
        for (std::size_t t = 0; t < texts.size(); ++t) {
            const std::string answer =
                answer_question(model, questions[n].question, texts[t], options);
            right[t] += contains_words(answer, questions[n].contains);
            given[t] += contains_words(texts[t], questions[n].contains);
            if (t == 1)
                rows.push_back({one_line(questions[n].question, 44), questions[n].contains,
                                one_line(answer, 30)});
        }
    }
    step("The answers with passages");
    show_table({"question", "contains", "answer"}, rows);
    step("Answers that contain what they should, of " + to_text(N));
    rows.clear();
    for (const std::size_t t : {0, 1, 2})
        rows.push_back(
            {std::array{"none", "found for the question", "found for another question"}[t],
             to_text(given[t]), to_text(right[t])});
    show_table({"passages", "that contain it", "answers that contain it"}, rows);
}

namespace {

void show_pairs(const std::vector<TextPairs>& kinds) {
    step("Pairs of texts that say the same");
    const std::array<std::string, 5> names = {
        "headings, the text below them", "sentence, the rest of its passage",
        "word of WordNet, its definition", "example of WordNet, definition of its word",
        "word of WordNet, related word"};
    std::vector<TableRow> rows;
    for (std::size_t k = 0; k < kinds.size(); ++k)
        rows.push_back({names[k], with_commas(kinds[k].size())});
    show_table({"pair", "number"}, rows);
}

}  // namespace

void train_and_save(const TrainCommand& command) {
    models::reject_existing(command.folder);
    const std::vector<Passage> passages = read_passages(asset("../docs"));
    std::vector<TextPairs> kinds = book_pairs(passages);
    for (const TextPairs& pairs : wordnet_pairs(command.wordnet, passages))
        kinds.push_back(pairs);
    show_pairs(kinds);
    make_folder(command.folder);  // before minutes of training
    EmbeddingTraining training = command.training;
    if (command.num_layers > 0) training.learning_rate = Real(0.002);
    step("Contrastive training: " + to_text(training.steps) + " steps of " +
         to_text(training.batch_size) + " pairs");
    EmbeddingModel model = make_embedding_model(kinds, command.num_layers, training.seed);
    show("loss", sparkline(train_embedding_model(model, kinds, training), 60));
    save_embedding_model(model, command.folder);
    show("written", command.folder);
}

}  // namespace llm::ask
