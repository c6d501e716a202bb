#include "chapters/10_tokenizer/exercise.hpp"

namespace exercise {

// Exercise 10.1 — find the bug. The leftmost pair was merged instead of the pair with the
// lowest rank: each iteration must search the whole word for it.
std::vector<Id> merge_word(std::vector<Id> ids, const Merges& merges) {
    while (true) {
        auto best = merges.end();
        std::size_t position = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto merge = merges.find({ids[i], ids[i + 1]});
            if (merge == merges.end()) continue;
            if (best != merges.end() && best->second.rank <= merge->second.rank) continue;
            best = merge;
            position = i;
        }
        if (best == merges.end()) return ids;
        ids[position] = best->second.merged;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(position) + 1);
    }
}

// Exercise 10.2 — find the bug. Each distinct word was counted once. A pair has the
// frequency of the words that contain it.
std::map<std::string, std::size_t> pair_frequencies(
    const std::map<std::string, std::size_t>& word_counts) {
    std::map<std::string, std::size_t> frequencies;
    for (const auto& [word, count] : word_counts) {
        const std::vector<std::string> letters = characters(word);
        for (std::size_t i = 0; i + 1 < letters.size(); ++i)
            frequencies[letters[i] + letters[i + 1]] += count;
    }
    return frequencies;
}

// Exercise 10.3 — find the bug. encode prepends the prefix tokens to every text that it is
// given. Only the first turn may have them.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& turns) {
    Tokenizer without_prefix = tokenizer;
    without_prefix.prefix_tokens.clear();
    std::vector<Id> ids = tokenizer.prefix_tokens;
    for (const std::string& turn : turns)
        for (const Id id : without_prefix.encode(turn)) ids.push_back(id);
    return ids;
}

// Exercise 10.4 — write encode_ordinary. Without added tokens, all of the text is ordinary.
std::vector<Id> encode_ordinary(const Tokenizer& tokenizer, const std::string& text) {
    Tokenizer ordinary = tokenizer;
    ordinary.added_tokens.clear();
    ordinary.normalized_added_tokens.clear();
    return ordinary.encode(text);
}

// Exercise 10.5 — write decode_stream. Keeps the bytes of an incomplete character until it is
// complete. Decodes all ids so far, because decode treats the first token differently.
std::vector<std::string> decode_stream(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
    std::vector<std::string> printed;
    std::string decoded, waiting;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto end = ids.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        const std::string text = tokenizer.decode({ids.begin(), end});
        waiting += text.substr(decoded.size());
        decoded = text;
        printed.push_back(take_printable(waiting, i + 1 == ids.size()));
    }
    return printed;
}

// Exercise 10.6 — write wordpiece. Tries the candidates from the longest to the shortest.
std::vector<std::string> wordpiece(const std::string& word,
                                   const std::set<std::string>& vocabulary) {
    const std::vector<std::string> letters = characters(word);
    std::vector<std::string> tokens;
    for (std::size_t begin = 0; begin < letters.size();) {
        std::size_t end = letters.size();
        std::string token;
        for (; end > begin; --end) {
            token = begin == 0 ? "" : "##";
            for (std::size_t i = begin; i < end; ++i) token += letters[i];
            if (vocabulary.contains(token)) break;
        }
        if (end == begin) return {"[UNK]"};
        tokens.push_back(token);
        begin = end;
    }
    return tokens;
}

namespace {

std::vector<Id> bytes_of(const std::string& text) {
    std::vector<Id> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
}

// Replaces each occurrence of the pair, from left to right.
std::vector<Id> merged(const std::vector<Id>& ids, const TokenPair& pair, Id id) {
    std::vector<Id> result;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool is_pair = i + 1 < ids.size() && TokenPair(ids[i], ids[i + 1]) == pair;
        result.push_back(is_pair ? id : ids[i]);
        i += is_pair ? 1 : 0;
    }
    return result;
}

}  // namespace

// Exercise 10.7 — write train_byte_bpe and encode_bytes. Encoding applies the merges
// in the order of training.
std::vector<TokenPair> train_byte_bpe(const std::string& text, std::size_t num_merges) {
    std::vector<Id> ids = bytes_of(text);
    std::vector<TokenPair> merges;
    while (merges.size() < num_merges) {
        std::map<TokenPair, std::size_t> counts;  // sorted: the first of equals is the lowest
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) ++counts[{ids[i], ids[i + 1]}];
        const auto best =
            std::max_element(counts.begin(), counts.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        if (best == counts.end() || best->second < 2) break;
        ids = merged(ids, best->first, 256 + static_cast<Id>(merges.size()));
        merges.push_back(best->first);
    }
    return merges;
}

std::vector<Id> encode_bytes(const std::string& text, const std::vector<TokenPair>& merges) {
    std::vector<Id> ids = bytes_of(text);
    for (std::size_t i = 0; i < merges.size(); ++i)
        ids = merged(ids, merges[i], 256 + static_cast<Id>(i));
    return ids;
}

}  // namespace exercise
