// Training with a first token or with learned sinks, and the attention weights that the first
// token and the learned sinks receive.
#pragma once

#include "chapters/13_training/trainer.hpp"
#include "chapters/17_long_context/pattern_attention_backward.hpp"

namespace llm {

// Replaces the first token of each sequence, as if each were the beginning of a text. The
// targets are unchanged. Throws ValueError if the sequences have no tokens.
Batch with_first_token(Batch batch, Id first_token_id);

// Trains with AdamW, one random batch per step, and, if given, a first token. Returns the loss
// of each step. Throws Interrupted after Ctrl-C.
std::vector<Real> train_decoder(PatternDecoder& decoder, const TrainingArguments& args,
                                const std::vector<Id>& tokens, std::optional<Id> first_token_id,
                                Generator& generator);

// Mean attention weights of each head, over the sequences and the queries from first_query on.
// Throws ValueError unless there are such queries.
struct SinkWeights {
    Matrix first_key;  // (L, H): of the first token
    Matrix sink;       // (L, H): of the learned sink: 1 minus the sum of a row
};
SinkWeights mean_sink_weights(const std::vector<Tensor4>& attentions,  // L times (B, H, T, T)
                              std::size_t first_query);

// The mean loss of the targets from position `first` on. Throws ValueError unless there are
// any.
double mean_loss_from(const Vector& losses, std::size_t first);  // (T)

}  // namespace llm
