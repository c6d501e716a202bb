// Regular expressions of tokenizers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace llm {

// A regular expression in the syntax of Oniguruma, the library with which Hugging Face's
// tokenizers match their patterns.
class Pattern {
 public:
    explicit Pattern(const std::string& expression);  // throws TextError

    // The begin and end of each match, in bytes, from left to right, with the empty matches
    // that Hugging Face's library finds: none at the end of another match, none in an empty
    // text. Throws TextError if the text is not UTF-8, or if the search exceeds its step limit.
    std::vector<std::pair<std::size_t, std::size_t>> matches(const std::string& text) const;
    // The text with each match replaced. Throws as matches().
    std::string replace_all(const std::string& text, const std::string& replacement) const;

 private:
    std::string expression_;
    std::shared_ptr<void> code_;
};

}  // namespace llm
