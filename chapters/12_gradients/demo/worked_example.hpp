// Chapter 12, steps of the program: the chain rule, and the loss of five words.
#pragma once

namespace llm {

// The gradient of a loss with respect to one weight.
void show_chain_rule();

// The loss of the shipped model on five words, and the gradient with respect to its logits.
void show_loss_of_words();

}  // namespace llm
