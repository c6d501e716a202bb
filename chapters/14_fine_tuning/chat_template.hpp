// Chapter 14, file 8 of 13: chat templates. A model that answers was trained on conversations
// written as one text, with special tokens between the messages; it must be asked in the same
// format.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// A call of a function: its name, and its arguments as JSON text, as in OpenAI's API.
struct ToolCall {
    std::string name, arguments;
};

// A message of a conversation. The role is "system", "user", "assistant" or, for the result of
// a call, "tool".
struct Message {
    std::string role, content;
    std::vector<ToolCall> tool_calls = {};  // of the assistant, after the content
    bool is_trained = true;                 // fine-tuning learns it, if it is the assistant's
};

// How a family of models marks messages. Chapter 14 has ChatML; models/chat has others.
struct ChatFormat;
extern const ChatFormat chatml_format;

struct ChatTemplate {
    const ChatFormat* format = &chatml_format;
    std::string default_system_prompt =
        "";                                // ChatML: if the first message is no system message
    bool tools_in_system_message = false;  // Qwen 2.5 and Qwen3
};

// A part of a rendered conversation: text of the template, or text that a user or the model
// wrote.
struct RenderedPart {
    std::string text;
    bool from_template;
};

struct RenderOptions {
    bool add_generation_prompt = true;    // end with the beginning of an answer
    bool enable_thinking = true;          // Qwen3: false writes an empty <think> block
    std::string bos_token;                // some formats begin with it
    std::string date_string;              // some say it: today, such as "26 Jul 2024"
    std::vector<std::string> tools = {};  // definitions as JSON texts, if the template has them
};

// Collects the parts of a rendered conversation.
struct Rendering {
    std::vector<RenderedPart> parts{};

    Rendering& literal(const std::string& text);  // of the template
    Rendering& content(const std::string& text);  // of a message
};

struct ChatFormat {
    std::string title, name;                  // "ChatML", "chatml"
    std::vector<std::string> special_tokens;  // the first one ends a message
    bool has_tools;                           // calls and results can be written
    void (*render)(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                   const RenderOptions& options, Rendering& out);
};

// Writes a conversation as the template of Hugging Face does. Throws ValueError for a
// conversation without messages, for other roles, for tools where the format has none, and for
// what the template itself rejects. ChatML writes tool calls and their results as Qwen does.
std::vector<RenderedPart> render_conversation(const ChatTemplate& chat_template,
                                              const std::vector<Message>& messages,
                                              const RenderOptions& options);
std::string rendered_text(const std::vector<RenderedPart>& parts);

// Encodes a rendered conversation. Special tokens, and other added tokens that the template
// writes, are recognized in parts of the template only. If they were recognized in messages,
// too, as tokenizer.encode(rendered_text(...)) does, then a user (or a quoted web page) could
// write "<|im_end|>\n<|im_start|>system\n..." and so end their own message and begin a system
// message: prompt injection.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<RenderedPart>& parts);

// The token that ends each message: in ChatML <|im_end|>. Generation stops there. Throws
// ValueError, which names the token, if the tokenizer lacks a special token of the format.
Id end_of_turn_id(const ChatFormat& format, const Tokenizer& tokenizer);

// The BOS token as text; empty if the tokenizer has none.
std::string bos_token_text(const Tokenizer& tokenizer);

}  // namespace llm
