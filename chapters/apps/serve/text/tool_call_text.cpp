#include "chapters/apps/serve/text/tool_call_text.hpp"

#include <algorithm>

#include "chapters/23_structured_output/tool_calls.hpp"
#include "common/files/unicode.hpp"

namespace llm::serve {
namespace {

// What tool_use_grammar writes around the name and the arguments.
const std::string before_name = "\n{\"name\": \"",
                  before_arguments = "\", \"arguments\": ", call_end = "}\n" + tool_call_end;

// Removes the first bytes of a text and returns them.
std::string take_first(std::string& text, std::size_t size) {
    const std::string first = text.substr(0, size);
    text.erase(0, size);
    return first;
}

}  // namespace

ToolCallText::Parts ToolCallText::put(const std::string& text) {
    pending_ += text;
    return take(false);
}

ToolCallText::Parts ToolCallText::finish(bool cut) {
    Parts parts = take(!cut);
    pending_.clear();
    return parts;
}

bool JsonEnd::put(char byte) {
    if (in_string_) {
        in_string_ = escaped_ || byte != '"';
        escaped_ = !escaped_ && byte == '\\';
        return false;
    }
    in_string_ = byte == '"';
    if (byte == '{' || byte == '[') ++depth_;
    if (byte != '}' && byte != ']') return false;
    --depth_;
    return depth_ == 0;
}

ToolCallText::Parts ToolCallText::take(bool at_end) {
    Parts parts;
    bool goes_on = true;
    while (goes_on) switch (inside_) {
            case Inside::content:
                goes_on = take_content(parts, at_end);
                break;
            case Inside::head:
                goes_on = take_head(parts);
                break;
            case Inside::arguments:
                goes_on = take_arguments(parts);
                break;
            case Inside::end:
                goes_on = take_end();
                break;
        }
    return parts;
}

// These return whether what they look for has come to its end.
bool ToolCallText::take_content(Parts& parts, bool at_end) {
    const std::size_t tag = pending_.find(tool_call_begin);
    const bool found = tag != pending_.npos;
    const std::string before_tag = "\n" + tool_call_begin;
    std::size_t size = found ? tag : pending_.size();
    if (found && size > 0 && pending_[size - 1] == '\n') --size;
    if (!found && !at_end)
        size -= std::max(overlap_length(pending_, before_tag),
                         overlap_length(pending_, tool_call_begin));
    const std::string content = take_first(pending_, size);
    if (num_begun_ == 0) parts.content += content;
    if (!found) return false;
    pending_.erase(0, pending_.find(tool_call_begin) + tool_call_begin.size());
    inside_ = Inside::head;
    return true;
}

bool ToolCallText::take_head(Parts& parts) {
    const std::size_t end = pending_.find(before_arguments);
    if (end == pending_.npos) return false;
    const std::string name = pending_.substr(before_name.size(), end - before_name.size());
    pending_.erase(0, end + before_arguments.size());
    parts.calls.push_back({num_begun_++, name});
    inside_ = Inside::arguments;
    return true;
}

bool ToolCallText::take_arguments(Parts& parts) {
    const auto end = std::find_if(pending_.begin(), pending_.end(),
                                  [&](char byte) { return arguments_end_.put(byte); });
    const bool found = end != pending_.end();
    const std::string arguments =
        take_first(pending_, std::size_t(end - pending_.begin()) + (found ? 1 : 0));
    if (!arguments.empty()) parts.calls.push_back({num_begun_ - 1, "", arguments});
    if (found) inside_ = Inside::end;
    return found;
}

bool ToolCallText::take_end() {
    if (pending_.size() < call_end.size()) return false;
    pending_.erase(0, call_end.size());
    ++num_complete_;
    inside_ = Inside::content;
    return true;
}

}  // namespace llm::serve
