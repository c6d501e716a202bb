// Chapter 09, steps of the program: five words through the whole model.
#pragma once

namespace llm {

// Five words through the whole model: ids, embeddings, the residual stream after each layer,
// the final norm, logits and probabilities of the next token.
void show_words_through_model();

}  // namespace llm
