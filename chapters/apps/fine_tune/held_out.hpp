// Held-out questions, and tables of the answers to them.
#pragma once

#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/apps/fine_tune/fine_tune.hpp"
#include "common/files/mapped_file.hpp"

namespace llm::fine_tune {

// The elements of this task. Throws FileError if there are none.
template <class T>
std::vector<T> of_task(std::vector<T> all, const std::string& task, const std::string& file) {
    if (!task.empty()) std::erase_if(all, [&](const T& one) { return one.task != task; });
    if (all.empty())
        throw FileError(file + ": it has no conversations" +
                        (task.empty() ? "" : " of the task " + task));
    return all;
}

std::vector<AskedQuestion> read_questions(const std::string& file, const std::string& task);

// Questions that are asked before and after training, of each task the first.
class HeldOutQuestions {
 public:
    // Without --test, there are none.
    explicit HeldOutQuestions(const FineTuningArguments& arguments);

    void ask(const Model& model, const ChatEncoder& encoder, std::uint32_t seed);
    // The scores of the models that were asked, the paired difference of two, how many of the
    // questions stand in the training data, and an answer to one question of each task.
    void show(std::uint32_t seed) const;

 private:
    const FineTuningArguments& arguments_;
    std::vector<AskedQuestion> questions_;
    std::vector<std::string> answers_;                  // of the last model
    std::vector<std::map<std::string, Score>> scores_;  // of each model, by task
    std::vector<Vector> correct_;                       // of each model: 1 for a right answer
};

}  // namespace llm::fine_tune
