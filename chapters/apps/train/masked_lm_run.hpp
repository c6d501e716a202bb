// ./learn train --masked-lm: a small ModernBERT of a text.
#pragma once

#include <optional>

#include "chapters/apps/runs/run_folder.hpp"
#include "chapters/apps/train/training_task.hpp"
#include "chapters/apps/train/training_text.hpp"

namespace llm::runs {

// Trains a WordPiece tokenizer and an encoder with a head for masked tokens, of the sizes of
// the task, and writes them as a Hugging Face folder. The program ends after about the given
// minutes; none: after max_steps steps. Shows the loss on held-out text, whose masked tokens
// are the same in each evaluation, beside that of counting tokens. Throws FileError and
// ValueError.
void train_masked_lm(const TrainingTask& task, RunFolder folder, const TrainingText& text,
                     std::optional<double> minutes);

}  // namespace llm::runs
