#include "chapters/14_fine_tuning/chatml.hpp"

namespace llm {
namespace {

using Messages = std::vector<Message>;

// The results of tools, one after the other, are one message of the user.
void tool_result(const Messages& messages, std::size_t i, Rendering& out) {
    const auto is_result = [&](std::size_t k) {
        return k < messages.size() && messages[k].role == "tool";
    };
    if (i == 0 || !is_result(i - 1)) out.literal("<|im_start|>user");
    out.literal("\n<tool_response>\n").content(messages[i].content);
    out.literal("\n</tool_response>");
    if (!is_result(i + 1)) out.literal("<|im_end|>\n");
}

void render_chatml(const ChatTemplate& chat_template, const Messages& messages,
                   const RenderOptions& options, Rendering& out) {
    const std::size_t first = chatml_system_message(chat_template, messages, options, out);
    for (std::size_t i = first; i < messages.size(); ++i) chatml_message(messages, i, out);
    if (options.add_generation_prompt) out.literal("<|im_start|>assistant\n");
}

}  // namespace

const ChatFormat chatml_format = {
    "ChatML", "chatml", {"<|im_end|>", "<|im_start|>"}, true, render_chatml};

void write_tool_calls(const Message& message, bool after_content, Rendering& out) {
    for (const ToolCall& call : message.tool_calls) {
        if (after_content) out.literal("\n");
        out.literal("<tool_call>\n{\"name\": \"").content(call.name);
        out.literal("\", \"arguments\": ").content(call.arguments).literal("}\n</tool_call>");
        after_content = true;
    }
}

void chatml_message(const Messages& messages, std::size_t i, Rendering& out) {
    const Message& message = messages[i];
    if (message.role == "tool") return tool_result(messages, i, out);
    out.literal("<|im_start|>").literal(message.role + "\n").content(message.content);
    write_tool_calls(message, !message.content.empty(), out);
    out.literal("<|im_end|>\n");
}

std::size_t chatml_system_message(const ChatTemplate& chat_template, const Messages& messages,
                                  const RenderOptions& options, Rendering& out) {
    const std::size_t num_written = messages[0].role == "system" ? 1 : 0;
    const std::string& otherwise = chat_template.default_system_prompt;
    const bool has_tools = chat_template.tools_in_system_message && !options.tools.empty();
    if (num_written == 0 && otherwise.empty() && !has_tools) return 0;
    out.literal("<|im_start|>system\n");
    if (num_written == 1)
        out.content(messages[0].content);
    else
        out.literal(otherwise);
    if (has_tools) {
        if (num_written == 1 || !otherwise.empty()) out.literal("\n\n");
        out.literal(
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n"
            "<tools>");
        for (const std::string& tool : options.tools) out.literal("\n").content(tool);
        out.literal(
            "\n</tools>\n\nFor each function call, return a json object with function name and "
            "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
            "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
    }
    out.literal("<|im_end|>\n");
    return num_written;
}

}  // namespace llm
