// Unicode for tokenizers and terminals: UTF-8 characters and normalization.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace llm {

// A text that is not UTF-8, or an invalid regular expression. The message is one line.
struct TextError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The content of a text file. Throws FileError if it cannot be read, is empty, has more than
// 64 MB, or is not text (UTF-8 without zero bytes).
std::string read_text(const std::filesystem::path& file);

// The lines of a text, without line terminators.
std::vector<std::string> lines_of(const std::string& text);

// The parts of a text between spaces and line ends, without empty ones.
std::vector<std::string> split_at_spaces(const std::string& text);

// Throws TextError, with the position, if a text is not UTF-8.
void check_utf8(const std::string& text);

// The UTF-8 characters of a text, one string each. Throws as check_utf8().
std::vector<std::string> characters(const std::string& text);

// The end of the run of white space that begins at a byte of a text, and the beginning of the
// run that ends there (Unicode: White_Space).
std::size_t white_space_end(const std::string& text, std::size_t at);
std::size_t white_space_begin(const std::string& text, std::size_t at);
// A text without white space at its ends, as by Python's str.strip, for which the control
// characters U+001C to U+001F are white space, too. Throws TextError if it is not UTF-8.
std::string strip(const std::string& text);
// Is the character before a byte of a text, or the one after it, a part of a word: a letter, a
// mark, a digit or a connector such as "_"?
bool is_word_before(const std::string& text, std::size_t at);
bool is_word_after(const std::string& text, std::size_t at);

// Unicode's normalization form C (NFC): "e" and a combining accent become "é". Throws TextError
// if the text is not UTF-8.
std::string composed(const std::string& text);
// Form D (NFD), the inverse: "é" becomes "e" and a combining accent. Throws as composed().
std::string decomposed(const std::string& text);
// Form KD (NFKD): also variants of characters become plain ones, a ligature its letters. Throws
// as composed().
std::string compatibility_decomposed(const std::string& text);

// The UTF-8 bytes of a code point.
std::string character(char32_t code_point);

// Replaces bytes that are not UTF-8 with U+FFFD, as Rust's String::from_utf8_lossy: one for the
// beginning of a character that is not complete ("maximal subpart"), one for any other byte.
std::string replace_invalid_utf8(const std::string& bytes);

// The bytes at the end of a text that begin a character without completing it: 0 to 3.
std::size_t incomplete_at_end(const std::string& text);

// The longest end of a text with which another text begins: its length, from 0 to all of it.
std::size_t overlap_length(const std::string& text, const std::string& next);

// Replaces each occurrence of a non-empty part, from left to right.
std::string replaced(const std::string& text, const std::string& part,
                     const std::string& replacement);

// Escapes a text for one line of output: line feeds, tabs, other control characters and those
// that change the text direction as \n, \t, \x1b; bytes that are not UTF-8 as \x80.
std::string escaped(const std::string& text);

// Removes the printable beginning of a text to which bytes are still appended, and returns it:
// complete characters, with "?" for control characters other than line feeds and tabs, and
// U+FFFD as in replace_invalid_utf8. The bytes of an incomplete character at the end stay in
// the text, unless at_end says that nothing follows.
std::string take_printable(std::string& text, bool at_end);

}  // namespace llm
