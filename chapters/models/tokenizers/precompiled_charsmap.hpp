// The normalizer of SentencePiece, compiled to a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llm::models {

// Rules that replace a few characters with others, such as those of Unicode's form NFKC: "ﬁ"
// becomes "fi", white space " ", a control character nothing. They are the keys of a
// double-array trie. Functions throw TextError where a damaged table leads out of itself.
struct PrecompiledCharsmap {
    std::vector<std::uint32_t> trie;  // one unit for each node
    std::string replacements;         // each with a zero byte after it

    // Normalizes as Hugging Face's library does. A letter with its accents (a grapheme cluster)
    // of less than 6 bytes is replaced as a whole by the rule for its shortest beginning: "ª"
    // with an accent becomes "a", and the accent is lost. All others are replaced character by
    // character. (SentencePiece replaces the longest beginning of the rest of the text.)
    // Source: tokenizers, normalizers/precompiled.rs; spm_precompiled, lib.rs.
    std::string operator()(const std::string& text) const;

    // The replacement of the shortest beginning of a text that has a rule; none: no rule.
    std::optional<std::string> replacement(const std::string& text) const;
};

// Reads precompiled_charsmap: four bytes with the size of the trie, the trie, replacements.
// Throws TextError if the sizes do not fit.
PrecompiledCharsmap read_precompiled_charsmap(const std::string& bytes);

// The bytes of a text in base 64, with its padding. Throws TextError for any other text.
std::string base64_decoded(const std::string& text);

}  // namespace llm::models
