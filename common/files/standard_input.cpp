#include "common/files/standard_input.hpp"

#include <iostream>

#include "common/files/unicode.hpp"

namespace llm {

std::string read_stream(std::istream& input) try {
    constexpr std::size_t max_bytes = 16384;
    std::string text(max_bytes + 2, '\0');  // a line feed, and one byte that is too many
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(input.gcount()));
    input.clear();  // a terminal can be read again, by --step
    if (text.ends_with('\n')) text.pop_back();
    if (text.size() > max_bytes)
        throw TextError("the text has more than " + std::to_string(max_bytes) + " bytes");
    if (const std::size_t at = text.find('\0'); at != text.npos)
        throw TextError("the text has a zero byte at byte " + std::to_string(at));
    characters(text);
    return text;
} catch (const TextError& error) {
    throw TextError(std::string("standard input: ") + error.what());
}

std::string read_standard_input() { return read_stream(std::cin); }

}  // namespace llm
