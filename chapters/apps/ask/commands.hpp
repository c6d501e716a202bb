// What ./learn ask does.
#pragma once

#include "chapters/apps/ask/answer.hpp"
#include "chapters/apps/ask/training.hpp"

namespace llm::ask {

// Shows the sections that answer a question.
void show_sections(const BookIndex& book, const std::string& question, std::size_t count);

// Shows the best sections: rank and score by words and by vectors among all passages, then
// their addresses and how they begin.
void show_scores(const BookIndex& book, const std::string& question, std::size_t count);

// A model's answer from the best sections, then their addresses.
void show_answer(const BookIndex& book, const chat::ChatModel& model,
                 const std::string& question, std::size_t count, const AnswerOptions& options);

// How many of the questions in a file are answered among the first sections, in percent with
// 95 % intervals: by words, by vectors, by both; and how many more by both than by words.
void evaluate_search(const BookIndex& book, const std::string& file, std::uint32_t seed);

// How many of a model's answers contain what the file says: without passages, with those that
// the search finds, and with those that it finds for the next question. Throws FileError if a
// question has no "contains".
void evaluate_answers(const BookIndex& book, const chat::ChatModel& model,
                      const std::string& file, std::size_t count, const AnswerOptions& options);

// Trains an embedding model on the pages and on WordNet, and writes it to a new folder.
struct TrainCommand {
    std::string folder, wordnet = "/usr/share/wordnet";
    std::size_t num_layers = 0;
    EmbeddingTraining training = {};
};
void train_and_save(const TrainCommand& command);

}  // namespace llm::ask
