// Chapter 17, file 8 of 8: how well a model predicts at each position, within its context and
// beyond.
#pragma once

#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

// The mean loss of the targets at each position, over the sequences of a batch. Throws
// ValueError as token_log_probs of chapter 14 does.
Vector loss_by_position(const Tensor3& logits,     // (B, T, V)
                        const IdMatrix& targets);  // (B, T) -> (T)

// The same for a model with another rotary table, so that scaled frequencies can be compared.
// For a context longer than that of training, raise config.max_position_embeddings first.
// Throws ValueError if the sequences exceed it or the table.
Vector loss_by_position(const Model& model, const RotaryTable& rotary_table,  // (P, D/2)
                        const IdMatrix& input_ids,                            // (B, T)
                        const IdMatrix& targets);                             // (B, T) -> (T)

// The mean loss in each part of the context that is as long as that of training: (P /
// part_len). Up to max_sequences adjacent sequences of P tokens are evaluated, on all cores.
// Throws ValueError unless part_len divides P and there are more than P tokens, and Interrupted
// after Ctrl-C.
std::vector<double> loss_by_part(const Model& model,
                                 const RotaryTable& rotary_table,  // (P, D/2)
                                 const std::vector<Id>& tokens, std::size_t part_len,
                                 std::size_t max_sequences);

}  // namespace llm
