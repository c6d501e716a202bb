// The chat templates of published models, which chapter 14 renders.
#pragma once

#include <optional>

#include "chapters/14_fine_tuning/chat_template.hpp"

namespace llm::models {

// Recognizes a published template by the fingerprint of its tokens. Templates are programs: one
// that contains the same special tokens can render something else, and a model that gets
// another format than in training answers worse without any error. So a template that is not
// known is rejected: throws FileError, which names the source and what the template resembles.
ChatTemplate recognize_chat_template(const std::string& jinja, const std::string& source);

// The template of a model: of a folder chat_template.jinja, or else chat_template in
// tokenizer_config.json (a text, or a list from which "default" is chosen); of a GGUF file
// tokenizer.chat_template. None if the model has none: a base model. Throws FileError as
// recognize_chat_template. Source: Hugging Face, tokenization_utils_base.py, from_pretrained.
std::optional<ChatTemplate> find_chat_template(const std::string& model_path);

// The chat template of an adapter's folder, or else that of the model's folder, or else ChatML.
// An empty path is skipped. Throws FileError as find_chat_template.
ChatTemplate chat_template_of(const std::string& model, const std::string& adapter);

}  // namespace llm::models
