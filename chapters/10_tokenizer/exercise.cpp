#include "chapters/10_tokenizer/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 10.1 — find the bug. Each token is in the vocabulary, and the ids decode to the
// text. But some words have other tokens than in training.
std::vector<Id> merge_word(std::vector<Id> ids, const Merges& merges) {
    for (std::size_t i = 0; i + 1 < ids.size();) {
        const auto merge = merges.find({ids[i], ids[i + 1]});
        if (merge == merges.end()) {
            ++i;
            continue;
        }
        ids[i] = merge->second.merged;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        i = 0;
    }
    return ids;
}

// Exercise 10.2 — find the bug. The trained vocabulary has tokens for rare names, and none for
// "the".
std::map<std::string, std::size_t> pair_frequencies(
    const std::map<std::string, std::size_t>& word_counts) {
    std::map<std::string, std::size_t> frequencies;
    for (const auto& [word, count] : word_counts) {
        const std::vector<std::string> letters = characters(word);
        for (std::size_t i = 0; i + 1 < letters.size(); ++i)
            ++frequencies[letters[i] + letters[i + 1]];
    }
    return frequencies;
}

// Exercise 10.3 — find the bug. The ids of one turn are correct. With several turns, the model
// ignores all but the last.
std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& turns) {
    std::vector<Id> ids;
    for (const std::string& turn : turns)
        for (const Id id : tokenizer.encode(turn)) ids.push_back(id);
    return ids;
}

// Exercise 10.4 — write encode_ordinary. A user who types <|im_end|> must not be able to end
// the turn: user input is encoded as ordinary text.
std::vector<Id> encode_ordinary([[maybe_unused]] const Tokenizer& tokenizer,
                                [[maybe_unused]] const std::string& text) {
    TODO("encode_ordinary");
}

// Exercise 10.5 — write decode_stream, for printing a text while it is generated. A character
// such as 中 can consist of three tokens: print it only when it is complete.
std::vector<std::string> decode_stream([[maybe_unused]] const Tokenizer& tokenizer,
                                       [[maybe_unused]] const std::vector<Id>& ids) {
    TODO("decode_stream");
}

// Exercise 10.6 — write wordpiece. BERT's tokenizer has no merges. The first token is
// the longest prefix of the word that is in the vocabulary, the next one the longest prefix of
// the rest, and so on. If no prefix is in the vocabulary, the whole word is [UNK].
std::vector<std::string> wordpiece([[maybe_unused]] const std::string& word,
                                   [[maybe_unused]] const std::set<std::string>& vocabulary) {
    TODO("wordpiece");
}

// Exercise 10.7 — write train_byte_bpe and encode_bytes: byte-level BPE from scratch, without
// pre-tokenization. Of equally frequent pairs, the one with the lowest ids is merged. Training
// stops early if no pair occurs twice.
std::vector<TokenPair> train_byte_bpe([[maybe_unused]] const std::string& text,
                                      [[maybe_unused]] std::size_t num_merges) {
    TODO("train_byte_bpe");
}
std::vector<Id> encode_bytes([[maybe_unused]] const std::string& text,
                             [[maybe_unused]] const std::vector<TokenPair>& merges) {
    TODO("encode_bytes");
}

}  // namespace exercise
