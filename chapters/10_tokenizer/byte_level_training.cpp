#include "chapters/10_tokenizer/byte_level_training.hpp"

#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "common/files/unicode.hpp"

namespace llm {

void add_special_token(Tokenizer& tokenizer, const std::string& content) {
    const Id id = static_cast<Id>(tokenizer.vocab_size());
    if (characters(content).empty()) throw TextError("a special token is empty");
    if (!tokenizer.vocab.emplace(content, id).second)
        throw TextError("the special token " + escaped(content) + " is given twice");
    tokenizer.token_bytes.push_back(content);
    tokenizer.added_tokens.push_back({content, id});
    tokenizer.all_special_ids.insert(id);
}

namespace {

// How often each distinct word occurs in the text between special tokens. A word is a sequence
// of bytes, so ByteLevel, which spells them as characters, is replaced by its pattern.
std::unordered_map<std::string, std::size_t> word_counts(const std::string& text,
                                                         const Tokenizer& tokenizer) {
    std::vector<PreTokenizer> pre_tokenizers = tokenizer.pre_tokenizers;
    pre_tokenizers.back() = gpt2_pre_tokenizer();
    std::unordered_map<std::string, std::size_t> counts;
    for (const Segment& segment : split_at_added_tokens(tokenizer.added_tokens, text)) {
        if (segment.id) continue;  // a special token
        std::vector<std::string> words = {segment.text};
        for (const PreTokenizer& pre_tokenizer : pre_tokenizers)
            words = split_words(pre_tokenizer, words, true);
        for (const std::string& word : words) ++counts[word];
    }
    return counts;
}

// A pair, and how often it occurred when it was added to the queue.
struct CountedPair {
    std::size_t count;
    TokenPair pair;
};

// The pairs of the words, with their counts. A merge updates the counts in the words that
// contain the merged pair; all other words keep theirs.
class PairQueue {
 public:
    PairQueue(BPETrainer& trainer, TieBreaking ties)
        : tokenizer_(trainer.tokenizer),
          words_(trainer.words),
          queue_([this, ties](const CountedPair& a, const CountedPair& b) {
              if (a.count != b.count) return a.count < b.count;
              return ties == TieBreaking::lowest_ids ? a.pair > b.pair
                                                     : bytes_of(a.pair) < bytes_of(b.pair);
          }) {
        for (std::size_t i = 0; i < words_.size(); ++i) add_pairs(i);
        add_to_queue();
    }
    PairQueue(const PairQueue&) = delete;  // the order of the queue refers to this object
    PairQueue& operator=(const PairQueue&) = delete;

    // The most frequent pair, or a count of 0 if there is none. A pair that has lost
    // occurrences to other merges is moved down in the queue when it gets to the top.
    CountedPair most_frequent() {
        while (!queue_.empty()) {
            const CountedPair top = queue_.top();
            const std::size_t count = counts_.at(top.pair);
            if (count == top.count) return top;
            queue_.pop();
            if (count > 0) queue_.push({count, top.pair});
        }
        return {0, {}};
    }

    // Merges a pair in the vocabulary and in all words.
    void merge(const TokenPair& pair) {
        const Merge merge = add_merge(tokenizer_, pair);
        for (const std::size_t i : std::exchange(words_with_[pair], {})) {
            remove_pairs(i);
            words_[i].ids = apply_merges_with_queue(words_[i].ids, {{pair, merge}});
            add_pairs(i, merge.merged);
        }
        add_to_queue();
    }

 private:
    Tokenizer& tokenizer_;
    std::vector<WordCount>& words_;
    PairCounts counts_;
    // The words that contain a pair, as indices, and some that contained it before a merge.
    std::unordered_map<TokenPair, std::vector<std::size_t>, PairHash> words_with_;
    std::set<TokenPair> new_pairs_;  // pairs that are not in the queue yet
    std::priority_queue<CountedPair, std::vector<CountedPair>,
                        std::function<bool(const CountedPair&, const CountedPair&)>>
        queue_;

    std::pair<const std::string&, const std::string&> bytes_of(const TokenPair& pair) const {
        return {tokenizer_.token_bytes[static_cast<std::size_t>(pair.first)],
                tokenizer_.token_bytes[static_cast<std::size_t>(pair.second)]};
    }

    void remove_pairs(std::size_t i) {
        const auto& [ids, count] = words_[i];
        for (std::size_t j = 0; j + 1 < ids.size(); ++j) counts_[{ids[j], ids[j + 1]}] -= count;
    }

    // After a merge, only pairs with the merged token are new in a word.
    void add_pairs(std::size_t i, std::optional<Id> merged = std::nullopt) {
        const auto& [ids, count] = words_[i];
        for (std::size_t j = 0; j + 1 < ids.size(); ++j) {
            const TokenPair pair{ids[j], ids[j + 1]};
            counts_[pair] += count;
            if (merged && pair.first != *merged && pair.second != *merged) continue;
            std::vector<std::size_t>& words = words_with_[pair];
            if (words.empty() || words.back() != i) words.push_back(i);
            new_pairs_.insert(pair);
        }
    }

    void add_to_queue() {
        for (const TokenPair& pair : new_pairs_) queue_.push({counts_.at(pair), pair});
        new_pairs_.clear();
    }
};

}  // namespace

BPETrainer make_byte_level_trainer(const std::string& text,
                                   const std::vector<std::string>& special_tokens,
                                   bool individual_digits) {
    BPETrainer trainer;
    Tokenizer& tokenizer = trainer.tokenizer;
    if (individual_digits) tokenizer.pre_tokenizers.push_back(digits_pre_tokenizer(true));
    tokenizer.pre_tokenizers.push_back(byte_level_pre_tokenizer(false, true));
    for (const std::string& content : special_tokens) add_special_token(tokenizer, content);

    // Sort the bytes by their printable characters: first those that map to themselves.
    std::map<std::string, std::string> byte_of;
    for (int byte = 0; byte < 256; ++byte)
        byte_of[byte_to_unicode(static_cast<unsigned char>(byte))] =
            std::string(1, static_cast<char>(byte));
    for (const auto& [character, byte] : byte_of) add_token(tokenizer, byte);

    // Encode each word as bytes: there are no merges yet.
    for (const auto& [word, count] : word_counts(text, tokenizer))
        trainer.words.push_back({tokenizer.encode(word), count});
    if (trainer.words.empty()) throw TextError("the text is empty");
    return trainer;
}

void train_merges(BPETrainer& trainer, const BPEOptions& options) {
    PairQueue pairs(trainer, options.ties);
    while (trainer.tokenizer.vocab_size() < options.vocab_size) {
        const auto [count, pair] = pairs.most_frequent();
        if (count == 0 || count < options.min_frequency) break;
        pairs.merge(pair);
    }
}

Tokenizer train_byte_level_bpe(const std::string& text, const BPEOptions& options) {
    BPETrainer trainer =
        make_byte_level_trainer(text, options.special_tokens, options.individual_digits);
    const Tokenizer& tokenizer = trainer.tokenizer;
    if (tokenizer.vocab_size() > options.vocab_size)
        throw TextError("256 bytes and " + to_text(options.special_tokens.size()) +
                        " special tokens are too many for a vocabulary of " +
                        to_text(options.vocab_size));

    train_merges(trainer, options);
    return trainer.tokenizer;
}

}  // namespace llm
