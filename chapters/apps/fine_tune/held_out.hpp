// Held-out questions, and tables of the answers to them.
#pragma once

#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/apps/fine_tune/fine_tune.hpp"

namespace llm::fine_tune {

// Questions that are asked before and after training, of each task the first.
class HeldOutQuestions {
 public:
    // Without --test, there are none.
    explicit HeldOutQuestions(const FineTuningTask& task);

    void ask(const Model& model, const ChatEncoder& encoder);
    // The scores of the models that were asked, the paired difference of two, how many of the
    // questions stand in the training data, and an answer to one question of each task.
    void show() const;

 private:
    const FineTuningTask& task_;
    std::vector<AskedQuestion> questions_;
    std::vector<std::string> answers_;                  // of the last model
    std::vector<std::map<std::string, Score>> scores_;  // of each model, by task
    std::vector<Vector> correct_;                       // of each model: 1 for a right answer
};

}  // namespace llm::fine_tune
