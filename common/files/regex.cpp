#include "common/files/regex.hpp"

#include <array>

#include <fmt/format.h>
#include <oniguruma.h>
#include <utf8proc.h>

#include "common/files/unicode.hpp"

namespace llm {
namespace {

const OnigUChar* begin_of(const std::string& text) {
    return reinterpret_cast<const OnigUChar*>(text.data());
}
const OnigUChar* end_of(const std::string& text) { return begin_of(text) + text.size(); }

std::string error_text(int error, OnigErrorInfo* info = nullptr) {
    std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
    onig_error_code_to_str(message.data(), error, info);
    return reinterpret_cast<const char*>(message.data());
}

int initialize() {
    std::array<OnigEncoding, 1> encodings = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings.data(), int{encodings.size()});
}

}  // namespace

Pattern::Pattern(const std::string& expression) : expression_(expression) {
    [[maybe_unused]] static const int initialized = initialize();
    regex_t* code = nullptr;
    OnigErrorInfo info{};
    const int status =
        onig_new(&code, begin_of(expression), end_of(expression), ONIG_OPTION_NONE,
                 ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    if (status != ONIG_NORMAL)
        throw TextError(fmt::format("the pattern '{}' is invalid: {}", expression,
                                    error_text(status, &info)));
    code_ = std::shared_ptr<void>(
        code, [](void* compiled) { onig_free(static_cast<regex_t*>(compiled)); });
}

std::vector<std::pair<std::size_t, std::size_t>> Pattern::matches(
    const std::string& text) const {
    check_utf8(text);
    const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
        onig_region_new(), [](OnigRegion* used) { onig_region_free(used, 1); });

    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t at = 0; at <= text.size() && !text.empty();) {
        const int status =
            onig_search(static_cast<regex_t*>(code_.get()), begin_of(text), end_of(text),
                        begin_of(text) + at, end_of(text), region.get(), ONIG_OPTION_NONE);
        if (status == ONIG_MISMATCH) break;
        if (status < 0)
            throw TextError(
                fmt::format("the pattern '{}' fails: {}", expression_, error_text(status)));
        const auto begin = static_cast<std::size_t>(region->beg[0]);
        const auto end = static_cast<std::size_t>(region->end[0]);
        if (begin == end && !found.empty() && end == found.back().second) {
            at = end + static_cast<std::size_t>(
                           utf8proc_utf8class[static_cast<unsigned char>(text[end])]);
        } else {
            found.emplace_back(begin, end);
            at = end;
        }
    }
    return found;
}

std::string Pattern::replace_all(const std::string& text,
                                 const std::string& replacement) const {
    std::string result;
    std::size_t at = 0;
    for (const auto& [begin, end] : matches(text)) {
        result += text.substr(at, begin - at) + replacement;
        at = end;
    }
    return result + text.substr(at);
}

}  // namespace llm
