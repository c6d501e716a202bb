// The tool calls in the text of an answer while it arrives.
#pragma once

#include <string>
#include <vector>

namespace llm::serve {

// A part of a call: first its name, without arguments, then pieces of its arguments.
struct ToolCallPart {
    std::size_t index = 0;    // of the call in the answer
    std::string name{};       // of the first part only
    std::string arguments{};  // JSON, perhaps cut anywhere
};

// Finds the end of a JSON object that arrives byte by byte.
class JsonEnd {
 public:
    // Is this the last byte of the object?
    bool put(char byte);

 private:
    std::size_t depth_ = 0;
    bool in_string_ = false, escaped_ = false;
};

// Splits a text of tool_use_grammar into content and calls. Nothing of a tag becomes content or
// arguments, also if it arrives in several texts or is cut; neither does a line feed before or
// after a call.
class ToolCallText {
 public:
    struct Parts {
        std::string content{};
        std::vector<ToolCallPart> calls{};
    };
    Parts put(const std::string& text);
    // No text follows: what was held back. `cut`: the text was to go on, so that the beginning
    // of a tag at its end is no content.
    Parts finish(bool cut = false);

    std::size_t num_complete() const { return num_complete_; }  // calls

 private:
    enum class Inside { content, head, arguments, end };
    bool take_content(Parts& parts, bool at_end);
    bool take_head(Parts& parts);
    bool take_arguments(Parts& parts);
    bool take_end();
    Parts take(bool at_end);

    Inside inside_ = Inside::content;
    JsonEnd arguments_end_{};
    std::size_t num_begun_ = 0, num_complete_ = 0;
    std::string pending_{};
};

}  // namespace llm::serve
