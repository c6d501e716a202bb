#include "chapters/apps/fine_tune/held_out.hpp"

#include <algorithm>

#include "chapters/apps/fine_tune/train_method.hpp"
#include "common/output/show.hpp"

namespace llm::fine_tune {
namespace {

// The first questions of each task.
std::vector<AskedQuestion> first_of_each_task(const std::vector<AskedQuestion>& questions,
                                              std::size_t count) {
    std::map<std::string, std::size_t> counts;
    std::vector<AskedQuestion> chosen;
    for (const AskedQuestion& question : questions)
        if (++counts[question.task] <= count || count == 0) chosen.push_back(question);
    return chosen;
}

// The row of a task: its name, and columns for the models before and after training.
TableRow row_of(const std::string& task, const std::vector<Score>& scores) {
    TableRow row = {task.empty() ? "(no task)" : task, to_text(scores[0].num_questions)};
    for (const Score& score : scores) {
        const Interval interval = wilson_interval(score);
        row.push_back(fixed(100 * double(score.num_correct) / double(score.num_questions), 1));
        row.push_back(fixed(100 * interval.low, 0) + " to " + fixed(100 * interval.high, 0));
    }
    return row;
}

using Scores = std::map<std::string, Score>;

void show_scores(const std::vector<Scores>& models) {
    std::vector<TableRow> rows;
    std::vector<Score> sums(models.size());
    for (const auto& [task, unused] : models[0]) {
        std::vector<Score> scores;
        for (std::size_t i = 0; i < models.size(); ++i) {
            scores.push_back(models[i].at(task));
            sums[i].num_correct += scores[i].num_correct;
            sums[i].num_questions += scores[i].num_questions;
        }
        rows.push_back(row_of(task, scores));
    }
    if (rows.size() > 1) rows.push_back(row_of("all", sums));
    TableRow headings = {"task", "questions"};
    for (std::size_t i = 0; i < models.size(); ++i) {
        headings.push_back(models.size() == 1 ? "correct, %"
                           : i == 0           ? "before, %"
                                              : "after, %");
        headings.emplace_back("95 % interval");
    }
    show_table(headings, rows);
}

void show_difference(const Vector& before, const Vector& after, std::uint32_t seed) {
    Generator generator(seed);
    const PairedDifference difference = paired_bootstrap(before, after, generator);
    show("difference of all questions, points",
         fixed(100 * difference.mean, 1) + ", 95 % interval " +
             fixed(100 * difference.interval.low, 1) + " to " +
             fixed(100 * difference.interval.high, 1));
}

// How many of the conversations up to a question stand in the training data, too.
void show_contamination(const FineTuningTask& task,
                        const std::vector<AskedQuestion>& questions) {
    if (task.train.empty() || std::holds_alternative<Dpo>(task.method)) return;
    const auto text_of = [](const AskedQuestion& question) {  // with what precedes it
        std::string text;
        for (const Message& message : question.messages) text += message.content + "\n";
        return text;
    };
    std::vector<std::string> held_out, training;
    for (const AskedQuestion& question : questions) held_out.push_back(text_of(question));
    for (const AskedQuestion& question : read_questions(task.train, task.task))
        training.push_back(text_of(question));
    show_progress("comparing " + to_text(questions.size()) +
                  " questions with the training data ...");
    const std::vector<bool> occurs = contaminated(held_out, training);
    show_progress("");
    show("held-out questions that stand in the training data",
         to_text(std::count(occurs.begin(), occurs.end(), true)) + " of " +
             to_text(questions.size()));
}

// The first question of each task with its answer.
void show_examples(const std::vector<AskedQuestion>& questions,
                   const std::vector<std::string>& answers) {
    std::map<std::string, bool> shown;
    for (std::size_t i = 0; i < questions.size(); ++i) {
        const auto& [messages, correct, task] = questions[i];
        if (shown[task]) continue;
        shown[task] = true;
        say(messages.back().content);
        const bool is_correct = exact_match_reward(correct, answers[i]) == 1;
        say("    " + (answers[i].empty() ? "(did not end)" : answers[i]) +
            (is_correct ? "" : "    not: " + correct));
    }
}

}  // namespace

HeldOutQuestions::HeldOutQuestions(const FineTuningTask& task) : task_(task) {
    if (!task.test.empty())
        questions_ =
            first_of_each_task(read_questions(task.test, task.task), task.test_questions);
}

void HeldOutQuestions::ask(const Model& model, const ChatEncoder& encoder) {
    if (questions_.empty()) return;
    Generator generator(task_.seed);  // its own, so that --test does not change the training
    show_progress("asking " + to_text(questions_.size()) + " questions ...");
    answers_ = answers_of(model, encoder, questions_,
                          {Real(task_.temperature), task_.max_new_tokens}, generator);
    show_progress("");
    scores_.push_back(score_answers(questions_, answers_));
    correct_.push_back(xt::zeros<Real>({questions_.size()}));
    for (std::size_t i = 0; i < questions_.size(); ++i)
        correct_.back()(i) =
            static_cast<Real>(exact_match_reward(questions_[i].answer, answers_[i]));
}

void HeldOutQuestions::show() const {
    if (questions_.empty()) return;
    step("Held-out questions");
    show_scores(scores_);
    if (correct_.size() == 2) show_difference(correct_[0], correct_[1], task_.seed);
    show_contamination(task_, questions_);
    show_examples(questions_, answers_);
}

}  // namespace llm::fine_tune
