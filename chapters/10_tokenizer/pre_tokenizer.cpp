#include "chapters/10_tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <unordered_map>

#include "common/files/regex.hpp"
#include "common/files/unicode.hpp"

namespace llm {

std::vector<Segment> split_at_added_tokens(const std::vector<AddedToken>& added_tokens,
                                           const std::string& text) {
    const auto longest_match = [&](std::size_t at) {
        const AddedToken* longest = nullptr;
        const std::string_view from_here = std::string_view(text).substr(at);
        for (const AddedToken& token : added_tokens)
            if (from_here.starts_with(token.content) &&
                (!longest || token.content.size() > longest->content.size()))
                longest = &token;
        return longest;
    };
    std::vector<Segment> segments;
    std::size_t rest = 0;  // where the text begins that is not in a segment yet
    for (std::size_t at = 0; at < text.size();) {
        const AddedToken* const token = longest_match(at);
        if (!token) {
            ++at;
            continue;
        }
        std::size_t begin = at, end = at + token->content.size();
        at = end;
        if (token->single_word && (is_word_before(text, begin) || is_word_after(text, end)))
            continue;
        if (token->lstrip) begin = white_space_begin(text, begin);
        if (token->rstrip) at = end = white_space_end(text, end);
        if (begin > rest) segments.push_back({text.substr(rest, begin - rest)});
        segments.push_back({token->content, token->id});
        rest = end;
    }
    if (rest < text.size()) segments.push_back({text.substr(rest)});
    return segments;
}

Normalizer nfc_normalizer() { return {"NFC", composed}; }

Normalizer prepend_normalizer(const std::string& prefix) {
    return {"Prepend",
            [prefix](const std::string& text) { return text.empty() ? text : prefix + text; }};
}

Normalizer replace_normalizer(const std::string& pattern, const std::string& content) {
    return {"Replace", [pattern, content](const std::string& text) {
                return replaced(text, pattern, content);
            }};
}

std::vector<std::string> split_words(const PreTokenizer& pre_tokenizer,
                                     const std::vector<std::string>& words, bool at_start) {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < words.size(); ++i)
        for (const std::string& part : pre_tokenizer.split(words[i], at_start && i == 0))
            result.push_back(part);
    return result;
}

const std::string gpt2_split_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

PreTokenizer regex_pre_tokenizer(const std::string& type, const std::string& expression,
                                 bool keep_gaps) {
    return {type, [pattern = Pattern(expression), keep_gaps](const std::string& word, bool) {
                std::vector<std::string> parts;
                std::size_t at = 0;
                for (const auto& [begin, end] : pattern.matches(word)) {
                    if (keep_gaps && begin > at) parts.push_back(word.substr(at, begin - at));
                    if (end > begin) parts.push_back(word.substr(begin, end - begin));
                    at = end;
                }
                if (keep_gaps && at < word.size()) parts.push_back(word.substr(at));
                return parts;
            }};
}

PreTokenizer gpt2_pre_tokenizer() { return regex_pre_tokenizer("Split", gpt2_split_pattern); }

PreTokenizer split_after_pre_tokenizer(const std::string& separator) {
    return {"Split", [separator](const std::string& word, bool) {
                std::vector<std::string> parts;
                for (std::size_t at = 0; at < word.size();) {
                    const std::size_t found = word.find(separator, at);
                    const std::size_t end =
                        found == word.npos ? word.size() : found + separator.size();
                    parts.push_back(word.substr(at, end - at));
                    at = end;
                }
                return parts;
            }};
}

PreTokenizer digits_pre_tokenizer(bool individual) {
    return regex_pre_tokenizer("Digits", individual ? R"(\p{N})" : R"(\p{N}+)");
}

PreTokenizer byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex) {
    return {"ByteLevel", [add_prefix_space, use_regex, gpt2 = gpt2_pre_tokenizer()](
                             const std::string& word, bool at_start) {
                const bool prefixed = add_prefix_space && !word.starts_with(' ');
                const std::string text = prefixed ? " " + word : word;
                std::vector<std::string> parts = {text};
                if (use_regex) parts = gpt2.split(text, at_start);

                // Replace each byte with its printable character.
                for (std::string& part : parts) part = bytes_to_unicode(part);
                return parts;
            }};
}

PreTokenizer metaspace_pre_tokenizer(const std::string& replacement, PrependScheme scheme,
                                     bool split) {
    return {"Metaspace", [replacement, scheme, split](const std::string& word, bool at_start) {
                std::string text = replaced(word, " ", replacement);
                const bool prepend = scheme == PrependScheme::always ||
                                     (scheme == PrependScheme::first && at_start);
                if (prepend && !text.starts_with(replacement)) text = replacement + text;
                if (!split) return std::vector<std::string>{text};

                // Begin a word at each replacement.
                std::vector<std::string> parts;
                for (std::size_t at = 0; at < text.size();) {
                    const std::size_t next =
                        std::min(text.find(replacement, at + 1), text.size());
                    parts.push_back(text.substr(at, next - at));
                    at = next;
                }
                return parts;
            }};
}

std::string byte_to_unicode(unsigned char byte) {
    const auto is_printable = [](unsigned b) {
        return (b > ' ' && b < 0x7f) || (b > 0xa0 && b != 0xad);  // 0xad: a soft hyphen
    };
    if (is_printable(byte)) return character(byte);
    char32_t next = 0x100;
    for (unsigned b = 0; b < byte; ++b) next += is_printable(b) ? 0 : 1;
    return character(next);
}

std::string bytes_to_unicode(const std::string& bytes) {
    std::string characters_of_bytes;
    for (const char byte : bytes)
        characters_of_bytes += byte_to_unicode(static_cast<unsigned char>(byte));
    return characters_of_bytes;
}

std::string unicode_to_bytes(const std::string& token) {
    static const std::unordered_map<std::string, char> byte_of = [] {
        std::unordered_map<std::string, char> inverse;
        for (int byte = 0; byte < 256; ++byte)
            inverse[byte_to_unicode(static_cast<unsigned char>(byte))] =
                static_cast<char>(byte);
        return inverse;
    }();
    std::string bytes;
    for (const std::string& character : characters(token)) {
        const auto byte = byte_of.find(character);
        if (byte == byte_of.end()) return token;
        bytes += byte->second;
    }
    return bytes;
}

std::string byte_fallback_token(unsigned char byte) {
    const std::string digits = "0123456789ABCDEF";
    return std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
}

}  // namespace llm
