// Chat formats other than ChatML, which is in chapter 14.
#pragma once

#include "chapters/14_fine_tuning/chat_template.hpp"

namespace llm::models {

// Llama 3 as first published and today, and 3.2, which says dates; Gemma, which has no system
// role, and Gemma 3, which writes a system message before the first one of the user. Roles of
// both must alternate. Qwen3 writes the reasoning of the last answers in <think>.
extern const ChatFormat first_llama3_format, llama3_format, llama32_format, gemma_format,
    gemma3_format, qwen3_format;

// "chatml", "llama3", "gemma", "gemma3", "qwen3". Throws ValueError for another name.
std::vector<std::string> chat_template_names();
ChatTemplate chat_template_named(const std::string& name);

}  // namespace llm::models
