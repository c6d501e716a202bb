#include "chapters/apps/serve/text/answer_text.hpp"

#include <algorithm>

#include "common/files/unicode.hpp"

namespace llm::serve {
using namespace models;

namespace {

bool is_in_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-'; }

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, std::vector<Id> first_ids,
                       std::vector<std::string> stop, const BadWords& bad_words,
                       std::string no_stop_after)
    : decoder_(tokenizer, std::move(first_ids)),
      stop_(std::move(stop)),
      no_stop_after_(std::move(no_stop_after)),
      bad_words_(bad_words) {}

std::string AnswerText::put(Id id) {
    if (!finish_reason_.empty()) return {};
    pending_ += decoder_.put(id);
    return take(false);
}

std::string AnswerText::finish() { return take(true); }

std::size_t AnswerText::num_held_back() const {
    std::size_t held =
        std::max(incomplete_at_end(pending_), overlap_length(pending_, no_stop_after_));
    for (const std::string& stop : stop_) held = std::max(held, overlap_length(pending_, stop));
    if (bad_words_.empty()) return held;
    const auto end = pending_.rbegin() + std::ptrdiff_t(held);
    return std::size_t(std::find_if_not(end, pending_.rend(), is_in_word) - pending_.rbegin());
}

// The first stop string; npos if there is none. One that begins where the mark may begin waits
// until it is clear whether it does.
std::size_t AnswerText::stop_position(bool at_end) {
    std::size_t cut = std::string::npos, limit = pending_.size();
    for (const std::string& stop : stop_) cut = std::min(cut, pending_.find(stop));
    if (no_stop_after_.empty()) return cut;
    const std::size_t mark = pending_.find(no_stop_after_);
    if (mark != std::string::npos) {
        limit = mark;
        stop_.clear();
        no_stop_after_.clear();
    } else if (!at_end) {
        limit -= overlap_length(pending_, no_stop_after_);
    }
    return cut < limit ? cut : std::string::npos;
}

std::string AnswerText::take(bool at_end) {
    // Cut at the first stop string.
    const std::size_t cut = stop_position(at_end);
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

}  // namespace llm::serve
