// Chapter 14, file 10 of 13: conversations and preferences in files, and as tokens.
#pragma once

#include <string>
#include <vector>

#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"

namespace llm {

// A conversation to train on or to ask, the name of its task (empty if the file has none), and
// where it stands: the file and the line.
struct Conversation {
    std::vector<Message> messages;
    std::string task = "", source = "";
};
// Reads JSON Lines, one conversation per line:
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}], "task":
//   "sum"}
// "weight": 0 in a message of the assistant means that it is not trained (OpenAI's
// fine-tuning). Throws FileError, with the number of the line, if one is no conversation or has
// no answer, or has a key that nothing reads, such as tool_calls. Keys that only describe a
// line (id, source, ...) may be there. Source: Hugging Face, TRL, "Dataset formats":
// conversational language modeling.
std::vector<Conversation> read_conversations(const std::string& file);

// Two answers to the same messages.
struct Preference {
    std::vector<Message> prompt;
    std::string chosen, rejected;
    std::string source = "";  // the file and the line
};
// Reads and writes JSON Lines, one preference per line:
//   {"prompt": [MESSAGES], "chosen": [{"role": "assistant", ...}], "rejected": [...]}
// Throws FileError. Source: the same, conversational preferences.
std::vector<Preference> read_preferences(const std::string& file);
void write_preferences(const std::string& file, const std::vector<Preference>& preferences);

// A model's tokenizer and chat template.
struct ChatEncoder {
    const Tokenizer& tokenizer;
    ChatTemplate chat_template;

    // The token that ends an answer.
    Id end_of_turn() const;
    // The messages, followed by the generation prompt.
    std::vector<RenderedPart> prompt(const std::vector<Message>& messages) const;
    std::vector<Id> prompt_ids(const std::vector<Message>& messages) const;
    // The answer to these messages, as the prompt and a response that ends with end_of_turn.
    // Throws ValueError if the tokens of the prompt depend on the answer.
    Completion completion(const std::vector<Message>& messages,
                          const std::string& answer) const;
    // One completion for each trained message of the assistant; the prompt is all that precedes
    // it.
    std::vector<Completion> completions(const std::vector<Message>& messages) const;
};

}  // namespace llm
