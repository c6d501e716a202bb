#include "chapters/23_structured_output/token_trie.hpp"

#include <algorithm>
#include <set>

namespace llm {
namespace {

std::set<Id> tokens_without_text(const Tokenizer& tokenizer) {
    std::set<Id> special = tokenizer.all_special_ids;
    special.insert(tokenizer.eos_token_ids.begin(), tokenizer.eos_token_ids.end());
    special.insert(tokenizer.prefix_tokens.begin(), tokenizer.prefix_tokens.end());
    for (const std::optional<Id>& id : {tokenizer.bos_token_id, tokenizer.unk_token_id})
        if (id) special.insert(*id);
    return special;
}

// Adds the nodes of tokens that have the same first `depth` bytes; they begin at ids[begin].
void add_nodes(TokenTrie& trie, std::size_t depth, std::uint32_t begin, std::uint32_t end) {
    const auto bytes = [&](std::uint32_t i) -> const std::string& {
        return trie.bytes_of(trie.ids[i]);
    };
    while (begin < end && bytes(begin).size() == depth) ++begin;
    while (begin < end) {
        // The tokens with the same next byte. Sorted, the shortest ones come first.
        std::uint32_t same_end = begin, exact_end = begin;
        while (same_end < end && bytes(same_end)[depth] == bytes(begin)[depth]) ++same_end;
        while (exact_end < same_end && bytes(exact_end).size() == depth + 1) ++exact_end;
        const std::size_t node = trie.nodes.size();
        trie.nodes.push_back({static_cast<unsigned char>(bytes(begin)[depth]),
                              static_cast<std::uint32_t>(depth + 1), 0, begin, exact_end});
        add_nodes(trie, depth + 1, begin, same_end);
        trie.nodes[node].subtree_end = static_cast<std::uint32_t>(trie.nodes.size());
        begin = same_end;
    }
}

}  // namespace

TokenTrie make_token_trie(const Tokenizer& tokenizer) {
    TokenTrie trie;
    trie.token_bytes = tokenizer.token_bytes;
    trie.eos_token_ids = tokenizer.eos_token_ids;
    trie.strip_leading_space = tokenizer.strip_leading_space;
    for (const Id id : tokens_without_text(tokenizer)) {
        const auto index = static_cast<std::size_t>(id);
        require(index < trie.vocab_size(), "token_trie: special token {} is not below {}", id,
                trie.vocab_size());
        trie.token_bytes[index].clear();
    }
    for (std::size_t id = 0; id < trie.token_bytes.size(); ++id)
        if (!trie.token_bytes[id].empty()) trie.ids.push_back(static_cast<Id>(id));
    std::stable_sort(trie.ids.begin(), trie.ids.end(),
                     [&](Id a, Id b) { return trie.bytes_of(a) < trie.bytes_of(b); });
    add_nodes(trie, 0, 0, static_cast<std::uint32_t>(trie.ids.size()));
    return trie;
}

}  // namespace llm
