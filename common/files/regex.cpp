#include "common/files/regex.hpp"

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>
#include <utf8proc.h>

#include "common/files/regex_syntax.hpp"
#include "common/files/unicode.hpp"

namespace llm {
namespace {

std::string error_text(int error) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return reinterpret_cast<const char*>(message.data());
}

}  // namespace

Pattern::Pattern(const std::string& expression) : expression_(expression) {
    const std::string translated = pcre2_from_oniguruma(expression);
    const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)>
        newlines(pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
    pcre2_set_newline(newlines.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, newlines.get());
    if (code == nullptr)
        throw TextError(fmt::format("the pattern '{}' is invalid or not supported: {}",
                                    expression, error_text(error)));
    code_ = std::shared_ptr<void>(
        code, [](void* compiled) { pcre2_code_free(static_cast<pcre2_code*>(compiled)); });
}

std::vector<std::pair<std::size_t, std::size_t>> Pattern::matches(
    const std::string& text) const {
    const auto* code = static_cast<const pcre2_code*>(code_.get());
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
        pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
    const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
        pcre2_match_context_create(nullptr), &pcre2_match_context_free);
    pcre2_set_match_limit(limits.get(), 1'000'000);

    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t at = 0; at <= text.size() && !text.empty();) {
        const int status =
            pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                        at > 0 ? PCRE2_NO_UTF_CHECK : 0, data.get(), limits.get());
        if (status == PCRE2_ERROR_NOMATCH) break;
        if (status < 0)
            throw TextError(
                fmt::format("the pattern '{}' fails: {}", expression_, error_text(status)));
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
        const bool is_empty = ends[0] == ends[1];
        if (is_empty && !found.empty() && ends[1] == found.back().second) {
            at = ends[1] + static_cast<std::size_t>(
                               utf8proc_utf8class[static_cast<unsigned char>(text[ends[1]])]);
        } else {
            found.emplace_back(ends[0], ends[1]);
            at = ends[1];
        }
    }
    return found;
}

}  // namespace llm
