#include "chapters/10_tokenizer/bpe_training.hpp"

#include <map>
#include <set>

#include "common/files/unicode.hpp"

namespace llm {
namespace {

// The distinct characters of the words, sorted. Throws TextError if they and <unk> exceed
// vocab_size.
std::set<std::string> alphabet_of(const std::map<std::string, std::size_t>& word_counts,
                                  std::size_t vocab_size) {
    std::set<std::string> alphabet;
    for (const auto& [word, count] : word_counts)
        for (const std::string& character : characters(word)) alphabet.insert(character);
    if (alphabet.empty()) throw TextError("the text is empty");
    if (vocab_size > 0 && alphabet.size() + 1 > vocab_size)
        throw TextError("the text has " + to_text(alphabet.size()) +
                        " different characters, too many for a vocabulary of " +
                        to_text(vocab_size));
    return alphabet;
}

}  // namespace

Id add_token(Tokenizer& tokenizer, const std::string& bytes) {
    const Id id = static_cast<Id>(tokenizer.vocab_size());
    const std::string token = tokenizer.spelling          ? tokenizer.spelling(bytes)
                              : tokenizer.is_byte_level() ? bytes_to_unicode(bytes)
                                                          : bytes;
    if (!tokenizer.vocab.emplace(token, id).second)
        throw TextError("the token " + escaped(token) + " occurs twice in the vocabulary");
    tokenizer.token_bytes.push_back(bytes);
    return id;
}

Merge add_merge(Tokenizer& tokenizer, const TokenPair& pair) {
    const std::string bytes = tokenizer.token_bytes[static_cast<std::size_t>(pair.first)] +
                              tokenizer.token_bytes[static_cast<std::size_t>(pair.second)];
    const Merge merge{double(tokenizer.merges.size()), add_token(tokenizer, bytes)};
    tokenizer.merges[pair] = merge;
    return merge;
}

PairCounts count_pairs(const std::vector<WordCount>& words) {
    PairCounts counts;
    for (const auto& [ids, count] : words)
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
    return counts;
}

BPETrainer make_bpe_trainer(const std::string& text, std::size_t vocab_size) {
    BPETrainer trainer;
    Tokenizer& tokenizer = trainer.tokenizer;
    tokenizer.unk_token_id = add_token(tokenizer, "<unk>");
    tokenizer.pre_tokenizers = {gpt2_pre_tokenizer()};

    // Count how often each distinct word occurs.
    std::map<std::string, std::size_t> word_counts;
    for (const std::string& word : tokenizer.pre_tokenize(text, true)) ++word_counts[word];

    // Add all characters to the vocabulary, and encode each word as characters.
    for (const std::string& character : alphabet_of(word_counts, vocab_size))
        add_token(tokenizer, character);
    for (const auto& [word, count] : word_counts)
        trainer.words.push_back({tokenizer.encode_word(word), count});
    return trainer;
}

bool merge_most_frequent_pair(BPETrainer& trainer) {
    // Find the most frequent pair. Pairs that occur only once are not merged.
    std::pair<TokenPair, std::size_t> best{{0, 0}, 0};
    for (const auto& [pair, count] : count_pairs(trainer.words))
        if (count > best.second || (count == best.second && pair < best.first))
            best = {pair, count};
    if (best.second < 2) return false;

    // Add a token for it. Its rank is the number of merges before it.
    const Merge merge = add_merge(trainer.tokenizer, best.first);

    // Merge it in all words, so that the next iteration counts pairs with the new token.
    for (WordCount& word : trainer.words)
        word.ids = apply_merges(std::move(word.ids), {{best.first, merge}});
    return true;
}

Tokenizer train_bpe(const std::string& text, std::size_t vocab_size) {
    BPETrainer trainer = make_bpe_trainer(text, vocab_size);
    while (trainer.tokenizer.vocab_size() < vocab_size && merge_most_frequent_pair(trainer)) {
    }
    return trainer.tokenizer;
}

}  // namespace llm
