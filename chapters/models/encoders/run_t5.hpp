// What ./learn model does with a T5.
#pragma once

#include "chapters/models/run_model.hpp"

namespace llm::models {

// Shows the stacks and the parameters of the T5 in this folder or GGUF file, what it computes
// for texts, the answer to a prompt, and exports it. Throws FileError and ValueError before
// anything is shown, if an input is invalid.
void run_t5(const ModelRun& run, Generator& generator);

}  // namespace llm::models
