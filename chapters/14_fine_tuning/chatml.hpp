// Chapter 14, file 9 of 13: ChatML, the format of Qwen and others.
#pragma once

#include "chapters/14_fine_tuning/chat_template.hpp"

namespace llm {

// The parts of the format, which others share. Tool calls, after the content of a message:
// <tool_call>
// {"name": "calculator", "arguments": {"expression": "1 + 1"}}
// </tool_call>
void write_tool_calls(const Message& message, bool after_content, Rendering& out);

// Message i:
// <|im_start|>user
// Hello<|im_end|>
void chatml_message(const std::vector<Message>& messages, std::size_t i, Rendering& out);

// The message of the system, or the default one, with the definitions of tools. Returns how
// many of the messages it has written.
std::size_t chatml_system_message(const ChatTemplate& chat_template,
                                  const std::vector<Message>& messages,
                                  const RenderOptions& options, Rendering& out);

}  // namespace llm
