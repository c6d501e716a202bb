// WordNet's database as pairs of texts.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

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

// The fields of a line up to " | ", one after another.
struct Fields {
    std::vector<std::string> fields;
    std::size_t at = 0;

    static constexpr const char* wrong = "is no line of WordNet's data files";

    const std::string& next() {
        require(at < fields.size(), wrong);
        return fields[at++];
    }
    std::size_t next_number(int base) {
        const std::string& text = next();
        std::size_t number = 0;
        const char* const end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, number, base);
        require(error == std::errc() && read == end, wrong);
        return number;
    }
};

// Type s is an adjective, too.
std::string id_of(const std::string& type, const std::string& offset) {
    return (type == "s" ? "a" : type) + offset;
}

// A line: offset, file, type, number of words (hexadecimal), pairs of a word and a number,
// number of pointers, for each one its kind, offset, type and words, then " | definition;
// "example"".
void add_synset(const std::string& line, Synsets& synsets) {
    const std::size_t bar = line.find(" | ");
    require(bar != line.npos, Fields::wrong);
    Fields fields{split_at_spaces(line.substr(0, bar))};
    const std::string offset = fields.next();
    fields.next();  // the lexicographer's file
    const std::string type = fields.next();
    Synset synset;
    for (std::size_t words = fields.next_number(16); words > 0; --words) {
        synset.words.push_back(word_of(fields.next()));
        fields.next();
    }
    for (std::size_t pointers = fields.next_number(10); pointers > 0; --pointers) {
        const std::string kind = fields.next(), other = fields.next(),
                          other_type = fields.next();
        fields.next();
        if (is_paraphrase(kind)) synset.related.push_back(id_of(other_type, other));
    }

    const std::string gloss = line.substr(bar + 3);
    synset.definition = strip(gloss.substr(0, gloss.find("; \"")));
    for (std::size_t at = gloss.find("; \""); at != gloss.npos; at = gloss.find("; \"", at + 3))
        synset.examples.push_back(gloss.substr(at + 3, gloss.find('"', at + 3) - at - 3));
    synsets[id_of(type, offset)] = synset;
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
    std::vector<std::string> decent(const std::vector<std::string>& words) const {
        std::vector<std::string> kept;
        for (const std::string& word : words)
            if (is_decent(word)) kept.push_back(word);
        return kept;
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
        // The other words of a meaning are those that questions may have.
        if (known.of(synset.words).empty() || !known.is_decent(synset.definition)) continue;
        const std::vector<std::string> words = known.decent(synset.words);
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
