#include "chapters/models/tokenizers/precompiled_charsmap.hpp"

#include "common/files/unicode.hpp"
#include "common/files/unicode_properties.hpp"
#include "common/tensors/shape.hpp"

namespace llm::models {
namespace {

// A node of the trie. A child is at this position XOR its byte; the value of a leaf is in the
// child of byte 0. Source: Darts-clone, darts.h.
struct TrieUnit {
    std::uint32_t bits;

    bool has_leaf() const { return (bits >> 8 & 1) != 0; }
    std::uint32_t value() const { return bits & 0x7FFFFFFF; }
    std::uint32_t label() const { return bits & 0x800000FF; }
    std::uint32_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
};

std::uint32_t little_endian(const std::string& bytes, std::size_t at) {
    std::uint32_t number = 0;
    for (std::size_t i = 4; i-- > 0;)
        number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
    return number;
}

TrieUnit unit_at(const std::vector<std::uint32_t>& trie, std::size_t position) {
    if (position >= trie.size())
        throw TextError("precompiled_charsmap is damaged: its trie has " +
                        to_text(trie.size()) + " nodes, but leads to node " +
                        to_text(position));
    return {trie[position]};
}

}  // namespace

std::optional<std::string> PrecompiledCharsmap::replacement(const std::string& text) const {
    std::size_t position = unit_at(trie, 0).offset();
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if (byte == 0) return std::nullopt;
        position ^= byte;
        const TrieUnit unit = unit_at(trie, position);
        if (unit.label() != byte) return std::nullopt;
        position ^= unit.offset();
        if (!unit.has_leaf()) continue;
        const std::size_t begin = unit_at(trie, position).value();
        const std::size_t end = replacements.find('\0', begin);
        if (begin >= replacements.size() || end == replacements.npos)
            throw TextError("precompiled_charsmap is damaged: a replacement is at byte " +
                            to_text(begin) + " of " + to_text(replacements.size()));
        return replacements.substr(begin, end - begin);
    }
    return std::nullopt;
}

std::string PrecompiledCharsmap::operator()(const std::string& text) const {
    constexpr std::size_t max_size = 5;  // bytes of a cluster that is replaced as a whole
    std::string result;
    for (const std::string& cluster : graphemes(text)) {
        if (const auto whole = replacement(cluster); whole && cluster.size() <= max_size) {
            result += *whole;
            continue;
        }
        for (const std::string& character : characters(cluster))
            result += replacement(character).value_or(character);
    }
    return result;
}

PrecompiledCharsmap read_precompiled_charsmap(const std::string& bytes) {
    const std::size_t header = 4;
    if (bytes.size() < header) throw TextError("there is no size of the trie");
    const std::size_t trie_size = little_endian(bytes, 0);
    if (trie_size % 4 != 0 || trie_size == 0 || trie_size > bytes.size() - header)
        throw TextError("a trie of " + to_text(trie_size) + " bytes in " +
                        to_text(bytes.size() - header));
    PrecompiledCharsmap charsmap;
    for (std::size_t at = header; at < header + trie_size; at += 4)
        charsmap.trie.push_back(little_endian(bytes, at));
    charsmap.replacements = bytes.substr(header + trie_size);
    return charsmap;
}

std::string base64_decoded(const std::string& text) {
    const std::string digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0;
    const std::size_t num_digits = text.find_last_not_of('=') + 1;
    for (std::size_t i = 0; i < num_digits; ++i) {
        const std::size_t digit = digits.find(text[i]);
        if (digit == digits.npos)
            throw TextError("character " + to_text(i) + " is not in base 64");
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        if (i % 4 > 0) bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)) & 0xFF);
    }
    if (text.size() % 4 != 0 || text.size() - num_digits > 2)
        throw TextError(to_text(text.size()) + " characters are no text in base 64");
    return bytes;
}

}  // namespace llm::models
