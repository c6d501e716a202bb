#include "chapters/models/chat/chat_formats.hpp"

#include <algorithm>
#include <array>

#include "chapters/14_fine_tuning/chatml.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

using Messages = std::vector<Message>;

std::string strip_line_feeds_left(const std::string& text) {
    return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
std::string strip_line_feeds_right(const std::string& text) {
    return text.substr(0, text.find_last_not_of('\n') + 1);
}

// <|start_header_id|>user<|end_header_id|>
//
// Hello<|eot_id|>
void llama3_message(const std::string& role, const std::string& text, Rendering& out) {
    out.literal("<|start_header_id|>" + role + "<|end_header_id|>\n\n");
    out.content(strip(text)).literal("<|eot_id|>");
}

void llama3_messages(const Messages& messages, std::size_t first, bool add_generation_prompt,
                     Rendering& out) {
    for (std::size_t i = first; i < messages.size(); ++i)
        llama3_message(messages[i].role, messages[i].content, out);
    if (add_generation_prompt) out.literal("<|start_header_id|>assistant<|end_header_id|>\n\n");
}

void render_llama3(const ChatTemplate&, const Messages& messages, const RenderOptions& options,
                   Rendering& out) {
    out.literal(options.bos_token);
    llama3_messages(messages, 0, options.add_generation_prompt, out);
}

// As first published, with a generation prompt at any end.
void render_first_llama3(const ChatTemplate&, const Messages& messages,
                         const RenderOptions& options, Rendering& out) {
    out.literal(options.bos_token);
    llama3_messages(messages, 0, true, out);
}

// The message of the system begins with dates.
void render_llama32(const ChatTemplate&, const Messages& messages, const RenderOptions& options,
                    Rendering& out) {
    const std::size_t first = messages[0].role == "system" ? 1 : 0;
    out.literal(options.bos_token);
    out.literal("<|start_header_id|>system<|end_header_id|>\n\n");
    out.literal("Cutting Knowledge Date: December 2023\n");
    out.literal("Today Date: " + options.date_string + "\n\n");
    out.content(first == 1 ? strip(messages[0].content) : "").literal("<|eot_id|>");
    llama3_messages(messages, first, options.add_generation_prompt, out);
}

// <start_of_turn>user
// Hello<end_of_turn>
void render_gemma(const ChatTemplate& chat_template, const Messages& messages,
                  const RenderOptions& options, Rendering& out) {
    const bool has_system_message = messages[0].role == "system";
    require(chat_template.format == &gemma3_format || !has_system_message,
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
        out.content(strip(content)).literal("<end_of_turn>\n");
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
    write_tool_calls(message, has_content, out);
    out.literal("<|im_end|>\n");
}

void render_qwen3(const ChatTemplate& chat_template, const Messages& messages,
                  const RenderOptions& options, Rendering& out) {
    const std::size_t query = last_query(messages);
    const std::size_t first = chatml_system_message(chat_template, messages, options, out);
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

const std::vector<std::string> llama3_tokens = {"<|eot_id|>", "<|start_header_id|>",
                                                "<|end_header_id|>"},
                               gemma_tokens = {"<end_of_turn>", "<start_of_turn>"};

}  // namespace

const ChatFormat first_llama3_format = {"Llama 3", "llama3", llama3_tokens, false,
                                        render_first_llama3};
const ChatFormat llama3_format = {"Llama 3", "llama3", llama3_tokens, false, render_llama3};
const ChatFormat llama32_format = {"Llama 3", "llama3", llama3_tokens, false, render_llama32};
const ChatFormat gemma_format = {"Gemma", "gemma", gemma_tokens, false, render_gemma};
const ChatFormat gemma3_format = {"Gemma 3", "gemma3", gemma_tokens, false, render_gemma};
const ChatFormat qwen3_format = {
    "Qwen3", "qwen3", {"<|im_end|>", "<|im_start|>"}, true, render_qwen3};

namespace {

const std::array named_formats = {&chatml_format, &llama3_format, &gemma_format, &gemma3_format,
                                  &qwen3_format};

}  // namespace

std::vector<std::string> chat_template_names() {
    std::vector<std::string> names;
    for (const ChatFormat* format : named_formats) names.push_back(format->name);
    return names;
}

ChatTemplate chat_template_named(const std::string& name) {
    for (const ChatFormat* format : named_formats)
        if (format->name == name) return {format, "", format == &qwen3_format};
    throw ValueError("there is no chat template " + name);
}

}  // namespace llm::models
