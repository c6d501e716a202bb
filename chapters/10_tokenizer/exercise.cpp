#include "chapters/10_tokenizer/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 10.1 — predict: the tokens that the first three merges of train_bpe add, for the
// text "sing sing sings ring rings king".
std::vector<std::string> predicted_merges() {
    TODO("predicted_merges");
    // return {"?", "?", "?"};
}

// Exercise 10.2 — predict: how many tokens do six, sixty and sixteen have? A tokenizer starts
// with characters and has four merges, in this order of ranks: t + e, s + i, si + x, x + t.
std::vector<std::size_t> predicted_token_counts() {
    TODO("predicted_token_counts");
    // return {?, ?, ?};
}

// Exercise 10.3 — predict: the vocabulary size at which train_bpe stops for the text
// "banana banana", because no pair occurs twice.
std::size_t predicted_vocabulary_size() {
    TODO("predicted_vocabulary_size");
    // return ?;
}

// Exercise 10.4 — predict: into how many words GPT-2's pattern splits the texts
// "we're here", "a  b" (two spaces) and "3.14!!".
std::vector<std::size_t> predicted_word_counts() {
    TODO("predicted_word_counts");
    // return {?, ?, ?};
}

// Exercise 10.5 — predict: how many tokens does "Zoë €5" have with byte-level BPE without
// merges, and with byte fallback, if the vocabulary has all ASCII characters, ▁ and ë, but no
// other characters and no merges? (Byte fallback replaces the space by ▁ and prepends nothing
// here.)
std::vector<std::size_t> predicted_byte_counts() {
    TODO("predicted_byte_counts");
    // return {?, ?};
}

// Exercise 10.6 — find the bug. The ids of one turn are correct. With several turns, the model
// ignores all but the last.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& turns) {
    std::vector<Id> ids;
    for (const std::string& turn : turns)
        for (const Id id : tokenizer.encode(turn)) ids.push_back(id);
    return ids;
}

// Exercise 10.7 — find the bug. Counting all pairs again after each merge is slow, so this
// function updates the counts. Training with it adds other tokens than train_bpe.
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
        if (i + 2 < ids.size()) {
            counts[{pair.second, ids[i + 2]}] -= word.count;
            counts[{merged, ids[i + 2]}] += word.count;
        }
    }
}

// Exercise 10.8 — write encode_ordinary. A user who types <|im_end|> must not be able to end
// the turn: user input is encoded as ordinary text.
std::vector<Id> encode_ordinary([[maybe_unused]] const Tokenizer& tokenizer,
                                [[maybe_unused]] const std::string& text) {
    TODO("encode_ordinary");
}

// Exercise 10.9 — write decode_stream, for printing a text while it is generated. A character
// such as 中 can consist of three tokens: print it only when it is complete.
std::vector<std::string> decode_stream([[maybe_unused]] const Tokenizer& tokenizer,
                                       [[maybe_unused]] const std::vector<Id>& ids) {
    TODO("decode_stream");
}

// Exercise 10.10 — write wordpiece. BERT's tokenizer has no merges. The first token is
// the longest prefix of the word that is in the vocabulary, the next one the longest prefix of
// the rest, and so on. If no prefix is in the vocabulary, the whole word is [UNK].
std::vector<std::string> wordpiece([[maybe_unused]] const std::string& word,
                                   [[maybe_unused]] const std::set<std::string>& vocabulary) {
    TODO("wordpiece");
}

// A BPE trainer from an empty file: exercises 10.11 to 10.15. Use the standard library,
// characters() and no other function of this project. Each step may call those before it.

// Exercise 10.11 — write count_words: how often each distinct word occurs in a text of letters
// and single spaces. A space is part of the word after it: "to be" has the words "to" and "
// be".
std::map<std::string, std::size_t> count_words([[maybe_unused]] const std::string& text) {
    TODO("count_words");
}

// Exercise 10.12 — write start_training: the initial state. Token 0 is "<unk>", then follow all
// characters of the words, sorted. Each word is a sequence of the ids of its characters.
Training start_training(
    [[maybe_unused]] const std::map<std::string, std::size_t>& word_counts) {
    TODO("start_training");
}

// Exercise 10.13 — write pair_counts: how often each pair of adjacent tokens occurs in the
// text.
std::map<TokenPair, std::size_t> pair_counts(
    [[maybe_unused]] const std::vector<CountedWord>& words) {
    TODO("pair_counts");
}

// Exercise 10.14 — write merge_pair: replace the pair by the id merged in all words, in each
// word from left to right.
void merge_pair([[maybe_unused]] std::vector<CountedWord>& words,
                [[maybe_unused]] const TokenPair& pair, [[maybe_unused]] Id merged) {
    TODO("merge_pair");
}

// Exercise 10.15 — write train: merge the most frequent pair (ties: the lowest ids), until
// there are vocab_size tokens or no pair occurs twice. The result is that of train_bpe.
Training train([[maybe_unused]] const std::string& text,
               [[maybe_unused]] std::size_t vocab_size) {
    TODO("train");
}

}  // namespace exercise
