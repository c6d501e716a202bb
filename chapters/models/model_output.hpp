// What programs show of a model: its logits, and the text that it writes.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/11_generation/generation.hpp"

namespace llm::models {

// A step with the logits, and the five most likely next tokens.
void show_next_tokens(const std::vector<Id>& tokens,  // (T)
                      const Tensor3& logits);         // (1, T, V)

// A step with the text that `generate` writes after a prompt, token by token, and its speed.
void write_continuation(
    const Tokenizer& tokenizer, const std::vector<Id>& prompt_ids, GenerationConfig config,
    const std::function<void(const GenerationConfig&, const std::function<void(Id)>& on_token)>&
        generate);

}  // namespace llm::models
