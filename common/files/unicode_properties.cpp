#include "common/files/unicode_properties.hpp"

#include <algorithm>

#include <utf8proc.h>

#include "common/files/unicode.hpp"

namespace llm {

char32_t code_point_of(const std::string& character) {
    utf8proc_int32_t code_point = 0;
    const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(character.data());
    const auto size = static_cast<utf8proc_ssize_t>(character.size());
    if (size == 0 || utf8proc_iterate(begin, size, &code_point) <= 0)
        throw TextError("there is no UTF-8 character in '" + escaped(character) + "'");
    return static_cast<char32_t>(code_point);
}

std::string_view general_category(const std::string& character) {
    return utf8proc_category_string(static_cast<utf8proc_int32_t>(code_point_of(character)));
}

namespace {

bool is_ascii_byte(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

std::string lower_case_of_ascii(std::string text) {
    for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

std::string lower_case_of_other(const std::string& text) {
    std::string result;
    for (const std::string& upper : characters(text)) {
        const char32_t code_point = code_point_of(upper);
        // The only character whose lower case is two: an i, and the dot above as an accent.
        if (code_point == 0x130) {
            result += "i" + character(0x307);
        } else {
            result += character(static_cast<char32_t>(
                utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
        }
    }
    return result;
}

}  // namespace

bool is_ascii(const std::string& text) {
    return std::all_of(text.begin(), text.end(), is_ascii_byte);
}

std::vector<std::string> ascii_runs(const std::string& text) {
    check_utf8(text);
    std::vector<std::string> runs;
    for (auto begin = text.begin(); begin != text.end();) {
        const auto end = std::find_if(begin, text.end(), [&](char byte) {
            return is_ascii_byte(byte) != is_ascii_byte(*begin);
        });
        runs.emplace_back(begin, end);
        begin = end;
    }
    return runs;
}

std::string lower_case(const std::string& text) {
    std::string result;
    for (const std::string& run : ascii_runs(text))
        result += is_ascii(run) ? lower_case_of_ascii(run) : lower_case_of_other(run);
    return result;
}

std::vector<std::string> graphemes(const std::string& text) {
    std::vector<std::string> clusters;
    utf8proc_int32_t before = 0, state = 0;
    for (const std::string& one : characters(text)) {
        const auto code_point = static_cast<utf8proc_int32_t>(code_point_of(one));
        if (clusters.empty() || utf8proc_grapheme_break_stateful(before, code_point, &state))
            clusters.emplace_back();
        clusters.back() += one;
        before = code_point;
    }
    return clusters;
}

}  // namespace llm
