// Properties of Unicode's characters: categories, upper and lower case, and clusters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llm {

// The code point of the first character of a text. Throws TextError if the text is empty or
// does not begin with a UTF-8 character.
char32_t code_point_of(const std::string& character);

// The general category of a character, in two letters: "Lu" for an upper-case letter, "Mn" for
// an accent that combines with the letter before it, "Nd" for a digit, "Po" for most
// punctuation, "Cn" for a code point that is not assigned. Throws as code_point_of(). Source:
// Python's unicodedata.category.
std::string_view general_category(const std::string& character);

// Has a text only characters below U+0080, of one byte each?
bool is_ascii(const std::string& text);
// A text cut into runs: one of ASCII, one without ASCII, and so on. Throws TextError if the
// text is not UTF-8.
std::vector<std::string> ascii_runs(const std::string& text);

// A text in lower case, each character by itself, as Rust's char::to_lowercase: the Greek sigma
// at the end of a word is that of its middle. Throws TextError if the text is not UTF-8.
std::string lower_case(const std::string& text);

// The extended grapheme clusters of a text, what a reader takes for one character: a letter
// with its accents, a line end of two characters. Throws TextError if the text is not UTF-8.
// Source: Unicode Standard Annex 29.
std::vector<std::string> graphemes(const std::string& text);

}  // namespace llm
