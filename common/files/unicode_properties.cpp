#include "common/files/unicode_properties.hpp"

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

std::string general_category(const std::string& character) {
    return utf8proc_category_string(static_cast<utf8proc_int32_t>(code_point_of(character)));
}

std::string lower_case(const std::string& text) {
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
