// What tokenizers need of Unicode: characters, composition, regular expressions.
#pragma once

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace llm {

// A text that cannot be read or a pattern that cannot be used. One line.
struct TextError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A whole text file. Throws FileError if it cannot be read, is empty, has more than 64 MB or is
// no text: UTF-8 without zero bytes.
std::string read_text(const std::filesystem::path& file);

// The lines of a text, without their ends.
std::vector<std::string> lines_of(const std::string& text);

// The UTF-8 characters of a text, one string each. Throws TextError if it is not UTF-8.
std::vector<std::string> characters(const std::string& text);

// Normal form C: "e" and a combining accent become "é". Throws TextError if it is not UTF-8.
std::string composed(const std::string& text);

// The UTF-8 bytes of a code point.
std::string character(char32_t code_point);

// The text with each occurrence of a non-empty part replaced.
std::string replaced(const std::string& text, const std::string& part,
                     const std::string& replacement);

// On one line: line ends, tabs and other control characters (and those that turn the direction
// of a line) as \n, \t, \x1b, and bytes that
// are no UTF-8 as \x80.
std::string escaped(const std::string& text);

// Takes from the front of a text that is still growing what a terminal can print: whole
// characters, with "?" for control characters other than line ends and tabs, and U+FFFD for
// bytes that are no UTF-8. Half a character stays behind, except at the end of the text.
std::string take_printable(std::string& text, bool at_end);

// A regular expression of PCRE2, in which \p{L}, \s and the like know Unicode.
class Pattern {
 public:
    explicit Pattern(const std::string& expression);  // throws TextError

    // Where it matches: begin and end, in bytes, from left to right. Empty matches are left
    // out. Throws TextError if the text is not UTF-8, or if the search takes too many steps.
    std::vector<std::pair<std::size_t, std::size_t>> matches(const std::string& text) const;

 private:
    std::string expression_;
    std::shared_ptr<void> code_;
};

}  // namespace llm
