#include <algorithm>
#include <array>

#include "chapters/14_fine_tuning/chat_template.hpp"
#include "common/files/unicode.hpp"

namespace llm {
namespace {

using Messages = std::vector<Message>;

// Collects the parts of a rendered conversation.
struct Rendering {
    std::vector<RenderedPart> parts;

    Rendering& literal(const std::string& text) {
        if (!text.empty()) parts.push_back({text, true});
        return *this;
    }
    Rendering& content(const std::string& text) {
        if (!text.empty()) parts.push_back({text, false});
        return *this;
    }
};

// Python's str.strip removes white space of all Unicode, also what Jinja's filter trim calls.
bool is_white_space(const std::string& character) {
    static const std::vector<std::string> spaces = {
        " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",
        "\x1e",   "\x1f",   "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
        "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
        "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
    return std::find(spaces.begin(), spaces.end(), character) != spaces.end();
}

std::string trim(const std::string& text) {
    const std::vector<std::string> all = characters(text);
    std::size_t begin = 0, end = all.size();
    while (begin < end && is_white_space(all[begin])) ++begin;
    while (end > begin && is_white_space(all[end - 1])) --end;
    std::string trimmed;
    for (std::size_t i = begin; i < end; ++i) trimmed += all[i];
    return trimmed;
}

std::string strip_line_feeds_left(const std::string& text) {
    return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
std::string strip_line_feeds_right(const std::string& text) {
    return text.substr(0, text.find_last_not_of('\n') + 1);
}

// <tool_call>
// {"name": "calculator", "arguments": {"expression": "1 + 1"}}
// </tool_call>
void tool_calls(const Message& message, bool after_content, Rendering& out) {
    for (const ToolCall& call : message.tool_calls) {
        if (after_content) out.literal("\n");
        out.literal("<tool_call>\n{\"name\": \"").content(call.name);
        out.literal("\", \"arguments\": ").content(call.arguments).literal("}\n</tool_call>");
        after_content = true;
    }
}

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

// <|im_start|>user
// Hello<|im_end|>
void chatml_message(const Messages& messages, std::size_t i, Rendering& out) {
    const Message& message = messages[i];
    if (message.role == "tool") return tool_result(messages, i, out);
    out.literal("<|im_start|>").literal(message.role + "\n").content(message.content);
    tool_calls(message, !message.content.empty(), out);
    out.literal("<|im_end|>\n");
}

// The message of the system, or the default one, with the definitions of tools. Returns how
// many of the messages it has written.
std::size_t system_message(const ChatTemplate& chat_template, const Messages& messages,
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

void render_chatml(const ChatTemplate& chat_template, const Messages& messages,
                   const RenderOptions& options, Rendering& out) {
    const std::size_t first = system_message(chat_template, messages, options, out);
    for (std::size_t i = first; i < messages.size(); ++i) chatml_message(messages, i, out);
    if (options.add_generation_prompt) out.literal("<|im_start|>assistant\n");
}

// <|start_header_id|>user<|end_header_id|>
//
// Hello<|eot_id|>
void render_llama3(const ChatTemplate& chat_template, const Messages& messages,
                   const RenderOptions& options, Rendering& out) {
    out.literal(options.bos_token);
    std::size_t first = 0;
    if (chat_template.date_in_system_message) {
        first = messages[0].role == "system" ? 1 : 0;
        out.literal("<|start_header_id|>system<|end_header_id|>\n\n");
        out.literal("Cutting Knowledge Date: December 2023\n");
        out.literal("Today Date: " + options.date_string + "\n\n");
        out.content(first == 1 ? trim(messages[0].content) : "").literal("<|eot_id|>");
    }
    for (std::size_t i = first; i < messages.size(); ++i) {
        out.literal("<|start_header_id|>" + messages[i].role + "<|end_header_id|>\n\n");
        out.content(trim(messages[i].content)).literal("<|eot_id|>");
    }
    if (options.add_generation_prompt || chat_template.always_generation_prompt)
        out.literal("<|start_header_id|>assistant<|end_header_id|>\n\n");
}

// <start_of_turn>user
// Hello<end_of_turn>
void render_gemma(const ChatTemplate& chat_template, const Messages& messages,
                  const RenderOptions& options, Rendering& out) {
    const bool has_system_message = messages[0].role == "system";
    require(chat_template.format == ChatFormat::gemma3 || !has_system_message,
            "Gemma's chat template: System role not supported");
    out.literal(options.bos_token);
    const std::size_t first = has_system_message ? 1 : 0;
    for (std::size_t i = first; i < messages.size(); ++i) {
        const std::string &role = messages[i].role, &content = messages[i].content;
        require((role == "user") == ((i - first) % 2 == 0),
                "Gemma's chat template: Conversation roles must alternate "
                "user/assistant/user/assistant/...");
        out.literal("<start_of_turn>" + (role == "assistant" ? "model" : role) + "\n");
        if (i == first && has_system_message)  // Gemma 3
            out.content(messages[0].content).literal("\n\n");
        out.content(trim(content)).literal("<end_of_turn>\n");
    }
    if (options.add_generation_prompt) out.literal("<start_of_turn>model\n");
}

// The last message of the user; the result of a tool is none. All messages if there is none.
std::size_t last_query(const Messages& messages) {
    for (std::size_t i = messages.size(); i-- > 0;) {
        const std::string& content = messages[i].content;
        const bool tool_response =
            content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
        if (messages[i].role == "user" && !tool_response) return i;
    }
    return messages.size() - 1;
}

// An answer of Qwen3: <think>, the reasoning, </think>, and the answer proper. Of earlier
// answers the conversation holds only the answer proper.
void qwen3_answer(const Message& message, bool after_query, bool last, Rendering& out) {
    const std::string begin = "<think>", end = "</think>";
    std::string answer = message.content, reasoning;
    if (const std::size_t first_end = answer.find(end); first_end != answer.npos) {
        reasoning = strip_line_feeds_right(answer.substr(0, first_end));
        if (const std::size_t at = reasoning.rfind(begin); at != reasoning.npos)
            reasoning.erase(0, at + begin.size());
        reasoning = strip_line_feeds_left(reasoning);
        answer = strip_line_feeds_left(answer.substr(answer.rfind(end) + end.size()));
    }
    const bool has_content = !answer.empty();
    out.literal("<|im_start|>assistant\n");
    if (after_query && (last || !reasoning.empty())) {
        out.literal("<think>\n").content(strip_line_feeds_right(reasoning));
        out.literal("\n</think>\n\n");
        answer = strip_line_feeds_left(answer);
    }
    out.content(answer);
    tool_calls(message, has_content, out);
    out.literal("<|im_end|>\n");
}

void render_qwen3(const ChatTemplate& chat_template, const Messages& messages,
                  const RenderOptions& options, Rendering& out) {
    const std::size_t query = last_query(messages);
    const std::size_t first = system_message(chat_template, messages, options, out);
    for (std::size_t i = first; i < messages.size(); ++i) {
        if (messages[i].role == "assistant")
            qwen3_answer(messages[i], i > query, i + 1 == messages.size(), out);
        else
            chatml_message(messages, i, out);
    }
    if (!options.add_generation_prompt) return;
    out.literal("<|im_start|>assistant\n");
    if (!options.enable_thinking) out.literal("<think>\n\n</think>\n\n");
}

void check_messages(const ChatTemplate& chat_template, const Messages& messages,
                    const RenderOptions& options) {
    require(!messages.empty(), "a conversation needs a message");
    const bool has_tools =
        chat_template.format == ChatFormat::chatml || chat_template.format == ChatFormat::qwen3;
    require(has_tools || options.tools.empty(),
            "tools are not implemented for the chat template {}",
            to_text(chat_template.format));
    static const std::array roles = {"system", "user", "assistant", "tool"};
    for (const Message& message : messages) {
        const std::string& role = message.role;
        require(std::find(roles.begin(), roles.end(), role) != roles.end(),
                "a message has the role system, user, assistant or tool, not '{}'", role);
        require(has_tools || (role != "tool" && message.tool_calls.empty()),
                "tool calls are not implemented for the chat template {}",
                to_text(chat_template.format));
    }
}

}  // namespace

std::vector<RenderedPart> render_conversation(const ChatTemplate& chat_template,
                                              const Messages& messages,
                                              const RenderOptions& options) {
    check_messages(chat_template, messages, options);
    Rendering out;
    switch (chat_template.format) {
        case ChatFormat::chatml:
            render_chatml(chat_template, messages, options, out);
            break;
        case ChatFormat::llama3:
            render_llama3(chat_template, messages, options, out);
            break;
        case ChatFormat::gemma:
        case ChatFormat::gemma3:
            render_gemma(chat_template, messages, options, out);
            break;
        case ChatFormat::qwen3:
            render_qwen3(chat_template, messages, options, out);
            break;
    }
    return out.parts;
}

std::string rendered_text(const std::vector<RenderedPart>& parts) {
    std::string text;
    for (const RenderedPart& part : parts) text += part.text;
    return text;
}

}  // namespace llm
