// Training on sequences that are longer than the context of a model.
#pragma once

#include "chapters/13_training/trainer.hpp"

namespace llm {

// Continues training with this rotary table, with AdamW and one random batch per step, of
// sequences that may be longer than max_position_embeddings, but not than the table. Throws
// Interrupted after Ctrl-C.
void train_on_longer_sequences(Model& model, const RotaryTable& rotary_table,  // (P, D/2)
                               const TrainingArguments& args, const std::vector<Id>& tokens);

}  // namespace llm
