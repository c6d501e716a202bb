#include "chapters/apps/ask/search.hpp"

#include <set>

#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm::ask {
namespace {

const std::set<std::string> stop_words = {
    "a",     "about",  "an",   "and",   "any",  "are",   "as",   "at",      "be",
    "but",   "by",     "can",  "could", "did",  "do",    "does", "for",     "from",
    "get",   "has",    "have", "how",   "i",    "if",    "in",   "instead", "into",
    "is",    "it",     "its",  "me",    "much", "my",    "of",   "on",      "one",
    "or",    "should", "so",   "than",  "that", "the",   "them", "then",    "there",
    "they",  "this",   "to",   "use",   "was",  "we",    "what", "when",    "where",
    "which", "who",    "why",  "will",  "with", "would", "you",  "your"};

std::vector<std::string> texts_of(const std::vector<Passage>& passages) {
    std::vector<std::string> texts;
    for (const Passage& passage : passages)
        texts.push_back(passage.headings + " " + passage.text);
    return texts;
}

std::vector<std::vector<std::string>> word_lists(const std::vector<Passage>& passages) {
    std::vector<std::vector<std::string>> lists;
    for (const std::string& text : texts_of(passages)) lists.push_back(search_words(text));
    return lists;
}

}  // namespace

std::string stem(std::string word) {
    // A plural s, but not that of "loss", "focus" or "axis"; then the first suffix that fits.
    static const std::vector<std::string> suffixes = {"ization", "ation", "ing", "edly", "ed",
                                                      "ion",     "er",    "ly",  "ment", "e"};
    const auto ends = [&](const std::string& end) { return word.ends_with(end); };
    if (word.size() > 3 && ends("s") && !ends("ss") && !ends("us") && !ends("is"))
        word.pop_back();
    for (const std::string& suffix : suffixes) {
        if (!ends(suffix) || word.size() < suffix.size() + 3) continue;
        word.resize(word.size() - suffix.size());
        // "stopped" is stop, "called" call, and "passing" pass.
        const std::size_t n = word.size();
        if (n > 3 && word[n - 1] == word[n - 2] && !ends("l") && !ends("s")) word.pop_back();
        break;
    }
    if (ends("i")) word.back() = 'y';  // "copied" and "copy"
    return word;
}

std::vector<std::string> search_words(const std::string& text) {
    std::vector<std::string> result;
    // √D is found by "root".
    for (const std::string& word : words(replaced(text, "√", " root ")))
        if (stop_words.count(word) == 0) result.push_back(stem(word));
    return result;
}

void check_question(const std::string& question) {
    require(!strip(question).empty(),
            "--question is missing: ./learn ask \"why divide by the root of D?\"");
    constexpr std::size_t most = 1000;
    const std::size_t count = characters(question).size();
    require(count <= most, "--question has {} characters; at most {} are searched for",
            with_commas(count), with_commas(most));
}

BookIndex::BookIndex(std::vector<Passage> passages, EmbeddingModel model)
    : passages_(std::move(passages)),
      index_(word_lists(passages_), {.k1 = 0.9, .b = 0.4}),
      model_(std::move(model)),
      fast_encoder_(models::make_fast_encoder(model_.encoder)),
      vectors_(model_.embed(texts_of(passages_), fast_encoder_)) {}

BookIndex::Found BookIndex::by_words(const std::string& question, std::size_t count) const {
    return index_.search(search_words(question), count);
}

BookIndex::Found BookIndex::by_vectors(const std::string& question, std::size_t count) const {
    const Matrix question_row = model_.embed({question}, fast_encoder_);  // (1, C)
    const Vector vector = xt::view(question_row, 0, xt::all());
    return semantic_search(vector, vectors_, count);
}

BookIndex::Found BookIndex::joined(const std::string& question, std::size_t count) const {
    constexpr std::size_t depth = 100;
    const Ranking words = ranking_of(by_words(question, depth));
    const Ranking vectors = ranking_of(by_vectors(question, depth));
    return best_first(reciprocal_rank_fusion({words, words, vectors}), count);
}

Ranking one_of_each_section(const std::vector<Passage>& passages, const Ranking& ranking) {
    std::set<std::pair<std::string, std::string>> seen;
    Ranking result;
    for (const std::size_t number : ranking)
        if (seen.insert({passages[number].page, passages[number].anchor}).second)
            result.push_back(number);
    return result;
}

}  // namespace llm::ask
