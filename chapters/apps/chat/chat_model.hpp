// What ./learn chat loads: a model for inference, its tokenizer and its chat template.
#pragma once

#include <optional>
#include <string>

#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/apps/chat/chat_session.hpp"
#include "chapters/models/chat/bad_words.hpp"

namespace llm::chat {

struct ChatModel {
    InferenceModel model;
    Tokenizer tokenizer;
    std::optional<ChatTemplate> chat_template;  // none: a base model, which continues texts
    std::vector<Id> eos_token_ids;              // with the token that ends an answer
    models::BadWords bad_words;                 // of the adapter, or the model
};

struct ChatModelFiles {
    std::string model_path = "";      // a folder, a GGUF file or a llama2.c file
    std::string tokenizer_path = "";  // empty: beside or in the model
    std::string adapter_path = "";    // a folder in PEFT's format; empty: none
    // "chatml", "none", ...; empty: that of the adapter or model.
    std::string template_name = "";
    // Of the weights; none: a GGUF file's own types, otherwise float32.
    std::optional<DType> dtype = std::nullopt;
};

// Merges the adapter into the weights before they are quantized; one for a GGUF file is
// rejected, as are adapters and other types of weights than float32 for models without a fast
// path. Throws FileError, and ValueError if the tokenizer lacks a special token
// of the template.
ChatModel load_chat_model(const ChatModelFiles& files);

}  // namespace llm::chat
