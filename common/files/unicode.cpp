#include "common/files/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <utf8proc.h>

#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

struct Character {
    std::size_t length;  // in bytes; 0 for bytes that are not UTF-8
    std::int32_t code_point;
};

Character character_at(const std::string& text, std::size_t at) {
    utf8proc_int32_t code_point = 0;
    const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
    const auto rest = static_cast<utf8proc_ssize_t>(text.size() - at);
    const utf8proc_ssize_t length = utf8proc_iterate(begin, rest, &code_point);
    return {length > 0 ? static_cast<std::size_t>(length) : 0, code_point};
}

// Control characters, line and paragraph separators, and those that change the text direction.
bool is_control(const Character& character) {
    const auto in_range = [&](std::int32_t first, std::int32_t last) {
        return character.code_point >= first && character.code_point <= last;
    };
    return in_range(0, 0x1f) || in_range(0x7f, 0x9f) || in_range(0x2028, 0x202e) ||
           in_range(0x2066, 0x2069);
}

// The number of bytes, starting at a place that has no complete character, which could begin
// one if other bytes followed; 0 if even the first could not.
std::size_t incomplete_length(const std::string& text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const unsigned char lead = byte(0);
    if (lead < 0xc2 || lead > 0xf4) return 0;

    // The second byte excludes overlong forms, surrogates and code points above U+10FFFF.
    const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (at + 1 == text.size() || byte(1) < low || byte(1) > high) return 1;
    const bool third = at + 2 < text.size() && (byte(2) & 0xc0) == 0x80;
    return lead >= 0xf0 && third ? 3 : 2;
}

[[noreturn]] void throw_not_utf8(std::size_t at) {
    throw TextError(fmt::format("the text is not UTF-8 at byte {}", at));
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
    const MappedFile file(path);
    const std::span<const std::byte> bytes = file.bytes();
    const auto reject = [&](const std::string& reason) {
        throw FileError(fmt::format("{}: {}", path.string(), reason));
    };
    if (bytes.size() > 64'000'000)
        reject(fmt::format("{} bytes are too many; a text may have 64000000", bytes.size()));
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const std::size_t at = text.find('\0'); at != text.npos)
        reject(fmt::format("no text: byte {} is 0", at));
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = character_at(text, at).length;
        if (length == 0) reject(fmt::format("no text: byte {} is no UTF-8", at));
        at += length;
    }
    return text;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return lines;
}

std::vector<std::string> split_at_spaces(const std::string& text) {
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
}

void check_utf8(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = character_at(text, at).length;
        if (length == 0) throw_not_utf8(at);
        at += length;
    }
}

std::vector<std::string> characters(const std::string& text) {
    std::vector<std::string> result;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = character_at(text, at).length;
        if (length == 0) throw_not_utf8(at);
        result.push_back(text.substr(at, length));
        at += length;
    }
    return result;
}

namespace {

// The first byte of the character before this byte.
std::size_t begin_of_character_before(const std::string& text, std::size_t at) {
    do --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
    return at;
}

bool is_white_space(std::int32_t code_point) {
    const auto category = utf8proc_category(code_point);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP || (code_point >= 0x9 && code_point <= 0xd) ||
           code_point == 0x85;
}

bool is_word(std::int32_t code_point) {
    switch (utf8proc_category(code_point)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            return false;
    }
}

}  // namespace

std::size_t white_space_end(const std::string& text, std::size_t at) {
    while (at < text.size()) {
        const auto [length, code_point] = character_at(text, at);
        if (length == 0 || !is_white_space(code_point)) break;
        at += length;
    }
    return at;
}

std::size_t white_space_begin(const std::string& text, std::size_t at) {
    while (at > 0) {
        const std::size_t before = begin_of_character_before(text, at);
        if (!is_white_space(character_at(text, before).code_point)) break;
        at = before;
    }
    return at;
}

std::string strip(const std::string& text) {
    check_utf8(text);
    const auto is_stripped = [&](std::size_t at) {
        const std::int32_t code_point = character_at(text, at).code_point;
        return is_white_space(code_point) || (code_point >= 0x1c && code_point <= 0x1f);
    };
    std::size_t begin = 0, end = text.size();
    while (begin < end && is_stripped(begin)) begin += character_at(text, begin).length;
    while (end > begin && is_stripped(begin_of_character_before(text, end)))
        end = begin_of_character_before(text, end);
    return text.substr(begin, end - begin);
}

bool is_word_before(const std::string& text, std::size_t at) {
    return at > 0 &&
           is_word(character_at(text, begin_of_character_before(text, at)).code_point);
}

bool is_word_after(const std::string& text, std::size_t at) {
    return at < text.size() && is_word(character_at(text, at).code_point);
}

namespace {

std::string normalized(const std::string& text, utf8proc_option_t form) {
    check_utf8(text);
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &made,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
    if (length < 0) throw TextError(utf8proc_errmsg(length));
    return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(length)};
}

}  // namespace

std::string composed(const std::string& text) { return normalized(text, UTF8PROC_COMPOSE); }

std::string decomposed(const std::string& text) { return normalized(text, UTF8PROC_DECOMPOSE); }

std::string compatibility_decomposed(const std::string& text) {
    return normalized(text,
                      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT));
}

std::string character(char32_t code_point) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length =
        utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
    return {reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length)};
}

std::string replace_invalid_utf8(const std::string& bytes) {
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = character_at(bytes, at).length;
        text += length > 0 ? bytes.substr(at, length) : character(0xfffd);
        at += length > 0 ? length : std::max<std::size_t>(incomplete_length(bytes, at), 1);
    }
    return text;
}

std::string replaced(const std::string& text, const std::string& part,
                     const std::string& replacement) {
    std::string result;
    std::size_t copied = 0;
    for (std::size_t at; (at = text.find(part, copied)) != text.npos;) {
        result += text.substr(copied, at - copied) + replacement;
        copied = at + part.size();
    }
    return result + text.substr(copied);
}

std::string escaped(const std::string& text) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        const Character next = character_at(text, at);
        const std::string bytes = text.substr(at, std::max<std::size_t>(next.length, 1));
        at += bytes.size();
        if (bytes == "\n" || bytes == "\t") {
            result += bytes == "\n" ? "\\n" : "\\t";
        } else if (next.length > 0 && !is_control(next)) {
            result += bytes;
        } else {
            for (const char byte : bytes)
                result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        }
    }
    return result;
}

std::size_t incomplete_at_end(const std::string& text) {
    for (std::size_t length = std::min<std::size_t>(3, text.size()); length > 0; --length) {
        const std::size_t at = text.size() - length;
        if (character_at(text, at).length == 0 && incomplete_length(text, at) == length)
            return length;
    }
    return 0;
}

std::size_t overlap_length(const std::string& text, const std::string& next) {
    std::size_t length = std::min(text.size(), next.size());
    while (!text.ends_with(std::string_view(next).substr(0, length))) --length;
    return length;
}

std::string take_printable(std::string& text, bool at_end) {
    const std::size_t end = text.size() - (at_end ? 0 : incomplete_at_end(text));
    std::string result;
    std::size_t at = 0;
    while (at < end) {
        const Character next = character_at(text, at);
        std::size_t length = next.length;
        if (length == 0) {
            length = std::max<std::size_t>(incomplete_length(text, at), 1);
            result += character(0xfffd);
        } else {
            const std::string bytes = text.substr(at, length);
            result += is_control(next) && bytes != "\n" && bytes != "\t" ? "?" : bytes;
        }
        at += length;
    }
    text.erase(0, at);
    return result;
}

}  // namespace llm
