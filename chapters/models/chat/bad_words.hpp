// Words that an answer must not have.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace llm::models {

// The FNV-1a hashes of words in lower case, so that a list of them can be read in public.
using BadWords = std::set<std::uint64_t>;

// Reads bad_words.txt in the folder of a model or adapter: a hash a line, as 16 hexadecimal
// digits; lines that begin with # are comments. None without the file. Throws FileError.
BadWords read_bad_words(const std::string& folder);

// Whether one of the words is in a text: in upper or lower case, or spelled with hyphens. A
// word is its longest sequence of the letters a to z, so "classic" has none of its parts.
bool has_bad_word(std::string_view text, const BadWords& words);

}  // namespace llm::models
