// Chapter 23, file 3 of 7: the tokens of a vocabulary as a trie (prefix tree) over their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// A node is the bytes on the path from the root to it. The nodes stand in depth-first order, so
// the subtree of node i is i + 1 ... subtree_end - 1, and rejecting the node skips to
// subtree_end.
struct TrieNode {
    unsigned char byte = 0;         // the last one of its bytes
    std::uint32_t depth = 0;        // the number of its bytes, at least 1
    std::uint32_t subtree_end = 0;  // the next node that does not begin with these bytes
    std::uint32_t ids_begin = 0, ids_end = 0;  // the tokens that are exactly these bytes
};

struct TokenTrie {
    std::vector<TrieNode> nodes;
    std::vector<Id> ids;  // of the tokens in the trie, sorted by their bytes

    std::vector<std::string> token_bytes;  // V: of each token; empty if not in the trie
    std::vector<Id> eos_token_ids;
    bool strip_leading_space = false;  // the tokenizer's: decode removes a space at the start

    std::size_t vocab_size() const { return token_bytes.size(); }
    const std::string& bytes_of(Id id) const {
        return token_bytes[static_cast<std::size_t>(id)];
    }
    std::span<const Id> ids_at(const TrieNode& node) const {
        return std::span(ids).subspan(node.ids_begin, node.ids_end - node.ids_begin);
    }
};

// The trie of all tokens that stand for text: none without bytes, no special token, and neither
// BOS, EOS nor the unknown token. The bytes are those of Tokenizer::decode_bytes: a space for
// "▁", one byte for <0xE2>. Throws ValueError if a special token is not in the vocabulary.
TokenTrie make_token_trie(const Tokenizer& tokenizer);

}  // namespace llm
