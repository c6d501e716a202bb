#include "chapters/10_tokenizer/bpe_training.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"

namespace llm {
namespace {

// A word as tokens, and how often the text has it.
struct Word {
    std::vector<Id> ids;
    std::size_t count;
};

using Pair = std::pair<Id, Id>;

// The neighbours that stand together most often; of equals the ones with the lowest ids.
std::pair<Pair, std::size_t> most_frequent_pair(const std::vector<Word>& words) {
    std::unordered_map<Pair, std::size_t, PairHash> counts;
    for (const Word& word : words)
        for (std::size_t i = 0; i + 1 < word.ids.size(); ++i)
            counts[{word.ids[i], word.ids[i + 1]}] += word.count;
    std::pair<Pair, std::size_t> best{{0, 0}, 0};
    for (const auto& [pair, count] : counts)
        if (count > best.second || (count == best.second && pair < best.first))
            best = {pair, count};
    return best;
}

// Every character of the words; there must be room for them beside <unk>. Size 0: any number.
std::set<std::string> alphabet_of(const std::map<std::string, std::size_t>& counts,
                                  std::size_t vocab_size) {
    std::set<std::string> alphabet;
    for (const auto& [word, count] : counts)
        for (const std::string& character : characters(word)) alphabet.insert(character);
    if (alphabet.empty()) throw TextError("the text is empty");
    if (vocab_size > 0 && alphabet.size() + 1 > vocab_size)
        throw TextError("the text has " + to_text(alphabet.size()) +
                        " different characters, too many for a vocabulary of " +
                        to_text(vocab_size));
    return alphabet;
}

}  // namespace

Tokenizer learn_tokenizer(const std::string& text, std::size_t vocab_size) {
    Tokenizer tokenizer;
    const auto add = [&](const std::string& piece) {
        tokenizer.ids[piece] = static_cast<Id>(tokenizer.pieces.size());
        tokenizer.pieces.push_back(piece);
        return tokenizer.ids[piece];
    };
    add("<unk>");
    tokenizer.unknown = 0;
    std::map<std::string, std::size_t> counts;
    tokenizer.steps.push_back(cut_into_words());
    const std::vector<std::string> words_of_text = tokenizer.stages(text, true).back();
    for (const std::string& word : words_of_text) ++counts[word];
    for (const std::string& character : alphabet_of(counts, vocab_size)) add(character);

    std::vector<Word> words;
    for (const auto& [word, count] : counts)
        words.push_back({tokenizer.encode_word(word), count});
    while (tokenizer.pieces.size() < vocab_size) {
        const auto [pair, count] = most_frequent_pair(words);
        if (count < 2) break;  // nothing is worth a token of its own
        const std::string piece = tokenizer.pieces[static_cast<std::size_t>(pair.first)] +
                                  tokenizer.pieces[static_cast<std::size_t>(pair.second)];
        const Merge merge{double(tokenizer.merges.size()), add(piece)};
        tokenizer.merges[pair] = merge;
        for (Word& word : words) word.ids = join_pairs(std::move(word.ids), {{pair, merge}});
    }
    return tokenizer;
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& file) {
    std::vector<std::pair<std::string, std::size_t>> vocabulary;
    for (std::size_t id = 0; id < tokenizer.pieces.size(); ++id)
        vocabulary.emplace_back(tokenizer.pieces[id], id);
    std::vector<std::pair<Pair, Merge>> merges(tokenizer.merges.begin(),
                                               tokenizer.merges.end());
    std::sort(merges.begin(), merges.end(),
              [](const auto& a, const auto& b) { return a.second.rank < b.second.rank; });
    std::vector<std::vector<std::string>> pairs;
    for (const auto& [pair, merge] : merges)
        pairs.push_back({tokenizer.pieces[static_cast<std::size_t>(pair.first)],
                         tokenizer.pieces[static_cast<std::size_t>(pair.second)]});
    write_json(file, {{"version", std::string("1.0")},
                      {"pre_tokenizer.type", std::string("Split")},
                      {"pre_tokenizer.pattern.Regex", word_pattern},
                      {"pre_tokenizer.behavior", std::string("Isolated")},
                      {"pre_tokenizer.invert", false},
                      {"decoder.type", std::string("Fuse")},
                      {"model.type", std::string("BPE")},
                      {"model.unk_token", std::string("<unk>")},
                      {"model.fuse_unk", false},
                      {"model.byte_fallback", false},
                      {"model.vocab", vocabulary},
                      {"model.merges", pairs}});
}

}  // namespace llm
