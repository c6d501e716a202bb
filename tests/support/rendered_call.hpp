// A tool call as the chat template ChatML writes it.
#pragma once

#include <string>

#include "chapters/14_fine_tuning/chat_template.hpp"

namespace llm {

inline std::string rendered_call(const ToolCall& call) {
    const std::string begin = "<|im_start|>assistant\n", end = "<|im_end|>\n";
    RenderOptions options;
    options.add_generation_prompt = false;
    const std::string text = rendered_text(
        render_conversation(ChatTemplate{}, {{"assistant", "", {call}}}, options));
    return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

}  // namespace llm
