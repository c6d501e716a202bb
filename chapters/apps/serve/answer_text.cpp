#include "chapters/apps/serve/answer_text.hpp"

#include <algorithm>

#include "common/files/unicode.hpp"

namespace llm {
namespace {

bool is_in_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-'; }

// The longest end of a text with which this string begins, but not all of the string.
std::size_t overlap(const std::string& text, const std::string& string) {
    std::size_t length = std::min(text.size(), string.size() - 1);
    while (length > 0 && !text.ends_with(std::string_view(string).substr(0, length))) --length;
    return length;
}

}  // namespace

std::size_t incomplete_utf8(const std::string& text) {
    for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
        const auto byte = static_cast<unsigned char>(text[text.size() - length]);
        if ((byte & 0xC0) == 0x80) continue;  // not the first byte of its character
        const std::size_t complete = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
        return length < complete ? length : 0;
    }
    return 0;
}

AnswerText::AnswerText(const Tokenizer& tokenizer, std::vector<Id> first_ids,
                       std::vector<std::string> stop, const BadWords& bad_words)
    : tokenizer_(tokenizer),
      ids_(std::move(first_ids)),
      num_bytes_(tokenizer.decode_bytes(ids_).size()),
      stop_(std::move(stop)),
      bad_words_(bad_words) {}

std::string AnswerText::put(Id id) {
    if (!finish_reason_.empty()) return {};
    ids_.push_back(id);
    const std::string bytes = tokenizer_.decode_bytes(ids_);
    pending_ += bytes.substr(std::min(num_bytes_, bytes.size()));
    num_bytes_ = bytes.size();
    return take(false);
}

std::string AnswerText::finish() { return take(true); }

std::size_t AnswerText::num_held_back() const {
    std::size_t held = incomplete_utf8(pending_);
    for (const std::string& stop : stop_) held = std::max(held, overlap(pending_, stop));
    if (bad_words_.empty()) return held;
    const auto end = pending_.rbegin() + std::ptrdiff_t(held);
    return std::size_t(std::find_if_not(end, pending_.rend(), is_in_word) - pending_.rbegin());
}

std::string AnswerText::take(bool at_end) {
    // Cut at the first stop string.
    std::size_t cut = std::string::npos;
    for (const std::string& stop : stop_) cut = std::min(cut, pending_.find(stop));
    if (cut != std::string::npos) {
        pending_.resize(cut);
        finish_reason_ = "stop";
        at_end = true;
    }

    // Split into what is final and what is held back.
    const std::size_t length = pending_.size() - (at_end ? 0 : num_held_back());
    const std::string text = pending_.substr(0, length);
    pending_.erase(0, length);
    if (!has_bad_word(text, bad_words_)) return replace_invalid_utf8(text);
    finish_reason_ = "content_filter";
    pending_.clear();
    return {};
}

}  // namespace llm
