#include "chapters/10_tokenizer/exercise.hpp"

namespace exercise {

// Exercise 10.1 — predict. i + n and n + g occur 6 times each; i + n has the lower ids. Then
// in + g occurs 6 times, and s + ing 3 times.
std::vector<std::string> predicted_merges() { return {"in", "ing", "sing"}; }

// Exercise 10.2 — predict. six; six t y; six te e n, because t + e is merged before x + t.
std::vector<std::size_t> predicted_token_counts() { return {1, 3, 4}; }

// Exercise 10.3 — predict. <unk>, the space, a, b and n; then an, ban, ana and banana.
std::size_t predicted_vocabulary_size() { return 9; }

// Exercise 10.4 — predict. we|'re| here, then a| | b, then 3|.|14|!!
std::vector<std::size_t> predicted_word_counts() { return {3, 3, 4}; }

// Exercise 10.5 — predict. ë has two bytes, € has three, and each other character one. With
// byte fallback, ë is one token.
std::vector<std::size_t> predicted_byte_counts() { return {9, 8}; }

// Exercise 10.6 — find the bug. encode prepends the prefix tokens to every text that it is
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

// Exercise 10.7 — find the bug. After the second token of the pair is erased, the token to the
// right of the merged one is ids[i + 1] and not ids[i + 2].
void merge_and_update(WordCount& word, const TokenPair& pair, Id merged, PairCounts& counts) {
    std::vector<Id>& ids = word.ids;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        if (TokenPair(ids[i], ids[i + 1]) != pair) continue;
        counts[pair] -= word.count;
        ids[i] = merged;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        if (i > 0) {
            counts[{ids[i - 1], pair.first}] -= word.count;
            counts[{ids[i - 1], merged}] += word.count;
        }
        if (i + 1 < ids.size()) {
            counts[{pair.second, ids[i + 1]}] -= word.count;
            counts[{merged, ids[i + 1]}] += word.count;
        }
    }
}

// Exercise 10.8 — write encode_ordinary. Without added tokens, all of the text is ordinary.
std::vector<Id> encode_ordinary(const Tokenizer& tokenizer, const std::string& text) {
    Tokenizer ordinary = tokenizer;
    ordinary.added_tokens.clear();
    ordinary.normalized_added_tokens.clear();
    return ordinary.encode(text);
}

// Exercise 10.9 — write decode_stream. Keeps the bytes of an incomplete character until it is
// complete. Decodes all ids so far, because decode treats the first token differently.
std::vector<std::string> decode_stream(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
    std::vector<std::string> printed;
    std::string decoded, waiting;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto end = ids.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        const std::string text = tokenizer.decode_bytes({ids.begin(), end});
        waiting += text.substr(decoded.size());
        decoded = text;
        printed.push_back(take_printable(waiting, i + 1 == ids.size()));
    }
    return printed;
}

// Exercise 10.10 — write wordpiece. Tries the candidates from the longest to the shortest.
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

// Exercise 10.11 — write count_words. A word ends before each space and at the end of the text.
std::map<std::string, std::size_t> count_words(const std::string& text) {
    std::map<std::string, std::size_t> counts;
    std::string word;
    for (const char character : text) {
        if (character == ' ' && !word.empty()) {
            ++counts[word];
            word.clear();
        }
        word += character;
    }
    if (!word.empty()) ++counts[word];
    return counts;
}

// Exercise 10.12 — write start_training. A std::map sorts the characters.
Training start_training(const std::map<std::string, std::size_t>& word_counts) {
    std::map<std::string, Id> ids;
    for (const auto& [word, count] : word_counts)
        for (const std::string& character : characters(word)) ids[character] = 0;

    Training training;
    training.tokens.push_back("<unk>");
    for (auto& [character, id] : ids) {
        id = static_cast<Id>(training.tokens.size());
        training.tokens.push_back(character);
    }

    for (const auto& [word, count] : word_counts) {
        CountedWord counted{{}, count};
        for (const std::string& character : characters(word))
            counted.ids.push_back(ids.at(character));
        training.words.push_back(counted);
    }
    return training;
}

// Exercise 10.13 — write pair_counts. A pair occurs as often as the word that contains it.
std::map<TokenPair, std::size_t> pair_counts(const std::vector<CountedWord>& words) {
    std::map<TokenPair, std::size_t> counts;
    for (const auto& [ids, count] : words)
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
    return counts;
}

// Exercise 10.14 — write merge_pair. Skips both tokens of a merged pair, so they do not
// overlap.
void merge_pair(std::vector<CountedWord>& words, const TokenPair& pair, Id merged) {
    for (CountedWord& word : words) {
        std::vector<Id> ids;
        std::size_t i = 0;
        while (i < word.ids.size()) {
            const bool is_pair =
                i + 1 < word.ids.size() && TokenPair(word.ids[i], word.ids[i + 1]) == pair;
            ids.push_back(is_pair ? merged : word.ids[i]);
            i += is_pair ? 2 : 1;
        }
        word.ids = ids;
    }
}

namespace {

// The most frequent pair and its count. A std::map is sorted by ids, so the first of equally
// frequent pairs has the lowest ids.
std::pair<TokenPair, std::size_t> most_frequent_pair(const std::vector<CountedWord>& words) {
    std::pair<TokenPair, std::size_t> best{{0, 0}, 0};
    for (const auto& [pair, count] : pair_counts(words))
        if (count > best.second) best = {pair, count};
    return best;
}

}  // namespace

// Exercise 10.15 — write train. Each merge adds a token, whose id is the next free one.
Training train(const std::string& text, std::size_t vocab_size) {
    Training training = start_training(count_words(text));
    std::vector<std::string>& tokens = training.tokens;
    while (tokens.size() < vocab_size) {
        const auto [pair, count] = most_frequent_pair(training.words);
        if (count < 2) break;
        merge_pair(training.words, pair, static_cast<Id>(tokens.size()));
        training.merges.push_back(pair);
        tokens.push_back(tokens[static_cast<std::size_t>(pair.first)] +
                         tokens[static_cast<std::size_t>(pair.second)]);
    }
    return training;
}

}  // namespace exercise
