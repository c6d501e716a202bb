// WordNet's database as pairs of texts.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "chapters/apps/ask/search.hpp"
#include "chapters/apps/ask/text_pairs.hpp"
#include "chapters/models/chat/bad_words.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"

namespace llm::ask {
namespace {

// A meaning: the words that have it, its definition, and the meanings that it points to.
struct Synset {
    std::vector<std::string> words, examples, related;  // related: ids
    std::string definition;
};
// By part of speech and offset in the file: "n00001740".
using Synsets = std::map<std::string, Synset>;

// "attorney_general(a)" is "attorney general".
std::string word_of(const std::string& lemma) {
    std::string word = lemma.substr(0, lemma.find('('));
    std::replace(word.begin(), word.end(), '_', ' ');
    return word;
}

// Hypernyms, derived forms, similar adjectives, entailments and causes. Parts and antonyms are
// no paraphrases.
bool is_paraphrase(const std::string& pointer) {
    return pointer == "@" || pointer == "+" || pointer == "&" || pointer == "*" ||
           pointer == ">";
}

// A line: offset, file, type, number of words (hexadecimal), pairs of a word and a number,
// number of pointers, for each one its kind, offset, type and words, then " | definition;
// "example"". Type s is an adjective, too.
void add_synset(const std::string& line, Synsets& synsets) {
    const std::size_t bar = line.find(" | ");
    std::istringstream fields(line.substr(0, bar));
    std::string offset, file, type, number, text;
    std::size_t num_words = 0, num_pointers = 0;
    fields >> offset >> file >> type >> std::hex >> num_words >> std::dec;
    Synset synset;
    while (num_words-- > 0 && fields >> text >> number) synset.words.push_back(word_of(text));
    fields >> num_pointers;
    for (std::string kind; num_pointers-- > 0 && fields >> kind >> text >> type >> number;)
        if (is_paraphrase(kind)) synset.related.push_back((type == "s" ? "a" : type) + text);
    require(bar != line.npos && bool(fields), "is no line of WordNet's data files");

    const std::string gloss = line.substr(bar + 3);
    synset.definition = strip(gloss.substr(0, gloss.find("; \"")));
    for (std::size_t at = gloss.find("; \""); at != gloss.npos; at = gloss.find("; \"", at + 3))
        synset.examples.push_back(gloss.substr(at + 3, gloss.find('"', at + 3) - at - 3));
    synsets[line.substr(12, 1) == "s" ? "a" + offset : line.substr(12, 1) + offset] = synset;
}

Synsets read_synsets(const std::string& folder) {
    Synsets synsets;
    for (const char* part : {"noun", "verb", "adj", "adv"}) {
        const std::string file = folder + "/data." + part;
        std::size_t number = 0;
        for (const std::string& line : lines_of(read_text(file))) {
            ++number;
            if (line.empty() || line.starts_with("  ")) continue;  // the license
            try {
                add_synset(line, synsets);
            } catch (const ValueError& error) {
                throw FileError(file + ", line " + std::to_string(number) + ": " +
                                error.what());
            }
        }
    }
    return synsets;
}

// The words of a meaning that the passages have, and no bad one.
struct KnownWords {
    std::set<std::string> stems = {};
    models::BadWords bad_words = {};

    bool has(const std::string& word) const {
        const std::vector<std::string> list = search_words(word);
        return !list.empty() && is_decent(word) &&
               std::all_of(list.begin(), list.end(),
                           [&](const std::string& each) { return stems.count(each) > 0; });
    }
    bool is_decent(const std::string& text) const {
        return !models::has_bad_word(text, bad_words);
    }
    std::vector<std::string> of(const std::vector<std::string>& words) const {
        std::vector<std::string> known;
        for (const std::string& word : words)
            if (has(word)) known.push_back(word);
        return known;
    }
};

void add_related(const std::vector<std::string>& words, const std::vector<std::string>& others,
                 TextPairs& pairs) {
    for (const std::string& word : words)
        for (const std::string& other : others)
            if (word != other) pairs.push_back({word, other});
}

}  // namespace

std::vector<TextPairs> wordnet_pairs(const std::string& folder,
                                     const std::vector<Passage>& passages) {
    KnownWords known;
    known.bad_words = models::read_bad_words(asset("wordnet_answers"));
    for (const Passage& passage : passages)
        for (const std::string& word : search_words(passage.headings + " " + passage.text))
            known.stems.insert(word);
    const Synsets synsets = read_synsets(folder);
    TextPairs definitions, examples, related;
    for (const auto& [id, synset] : synsets) {
        const std::vector<std::string> words = known.of(synset.words);
        if (words.empty() || !known.is_decent(synset.definition)) continue;
        for (const std::string& word : words) definitions.push_back({word, synset.definition});
        for (const std::string& example : synset.examples)
            if (known.is_decent(example)) examples.push_back({example, synset.definition});
        add_related(words, words, related);
        for (const std::string& other : synset.related)
            if (const auto found = synsets.find(other); found != synsets.end())
                add_related(words, known.of(found->second.words), related);
    }
    return {definitions, examples, related};
}

}  // namespace llm::ask
