// Chapter 11, file 5 of 7: which tokens a prediction attended to, and what each layer would
// predict.
#pragma once

#include "chapters/09_full_model/model.hpp"

namespace llm {

// The attention weights of query t: one row for each head. Throws ValueError if there is no
// query t.
Matrix attentions_of_query(const Tensor4& attentions,  // (1, H, T, T), of one layer
                           std::size_t t);             // -> (H, t + 1)

// The logit lens: the probabilities of the token after position t that the final norm and the
// LM head give when they are applied to the hidden states of any layer. Throws ValueError if
// there is no position t. Source: nostalgebraist, "interpreting GPT: the logit lens", 2020.
Vector logit_lens(const Model& model,
                  const Tensor3& hidden_states,  // (1, T, C)
                  std::size_t t);                // -> (V)

}  // namespace llm
