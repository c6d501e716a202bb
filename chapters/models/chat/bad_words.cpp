#include "chapters/models/chat/bad_words.hpp"

#include <cctype>
#include <charconv>

#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/hash.hpp"

namespace llm::models {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// Whether a word of a text is on the list. Hyphens are in words if they are to be skipped.
bool has_word(std::string_view text, const BadWords& words, bool skips_hyphens) {
    std::string word;
    const auto is_bad = [&] { return words.contains(fnv1a(word)); };
    for (const char c : text) {
        if (is_letter(c))
            word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else if (!(skips_hyphens && c == '-')) {
            if (is_bad()) return true;
            word.clear();
        }
    }
    return is_bad();
}

}  // namespace

BadWords read_bad_words(const std::string& folder) {
    const std::string path = folder + "/bad_words.txt";
    BadWords words;
    if (!is_file(path)) return words;
    for (const std::string& line : lines_of(read_text(path))) {
        if (line.empty() || line.starts_with('#')) continue;
        std::uint64_t hash = 0;
        const char* end = line.data() + line.size();
        const auto [rest, error] = std::from_chars(line.data(), end, hash, 16);
        if (error != std::errc() || rest != end || line.size() != 16)
            throw FileError(path + ": expected 16 hexadecimal digits, got " + escaped(line));
        words.insert(hash);
    }
    return words;
}

bool has_bad_word(std::string_view text, const BadWords& words) {
    return has_word(text, words, false) || has_word(text, words, true);
}

}  // namespace llm::models
