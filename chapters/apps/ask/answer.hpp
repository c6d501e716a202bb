// Retrieval-augmented generation: a language model answers from passages of the book.
#pragma once

#include "chapters/11_generation/generation.hpp"
#include "chapters/apps/ask/evaluation.hpp"
#include "chapters/apps/chat/chat_model.hpp"

namespace llm::ask {

// What the model is asked: the passages, as many words of them as fit, then the question; the
// question alone without passages.
std::string prompt_of(const std::string& question, const std::string& passages);

// The prompt of a model with a chat template is a message of the user; that of another one is
// the text itself. The passages are cut so that there is room for max_new_tokens. Throws
// ValueError if the question alone does not fit.
std::vector<Id> encode_question(const chat::ChatModel& model, const std::string& question,
                                const std::string& passages, std::size_t num_positions,
                                std::size_t max_new_tokens);

struct AnswerOptions {
    std::size_t max_new_tokens = 128;
    std::size_t context_length = 4096;  // at most that of the model
    DType cache_dtype = DType::float32;
};
// The answer by greedy decoding; each piece of its text is passed on as it is generated. Throws
// ValueError as above, and Interrupted after Ctrl-C.
std::string answer_question(const chat::ChatModel& model, const std::string& question,
                            const std::string& passages, const AnswerOptions& options,
                            const std::function<void(const std::string&)>& on_text = {});

// Whether an answer contains an expected word or number, as words: "12" is not in "128".
bool contains_words(const std::string& answer, const std::string& expected);

}  // namespace llm::ask
