// Searches the passages of the pages for the answer to a question.
#pragma once

#include "chapters/25_encoders/retrieval.hpp"
#include "chapters/apps/ask/passages.hpp"

namespace llm::ask {

// The words of a text to search for: their stems, without words that every question has ("why",
// "the").
std::vector<std::string> search_words(const std::string& text);
// A word without its ending, so that "scaled", "scales" and "scaling" are one. A dozen suffixes
// in place of Porter's rules (1980).
std::string stem(std::string word);

// BM25 over the headings and the text of each passage, with the k1 and b of Anserini's
// baselines.
class BookIndex {
 public:
    explicit BookIndex(std::vector<Passage> passages);

    const std::vector<Passage>& passages() const { return passages_; }
    // The best passages first, at most `count`.
    Ranking by_words(const std::string& question, std::size_t count) const;

 private:
    std::vector<Passage> passages_;
    Bm25Index index_;
};

// The best passage of each section, in the order of the ranking: a section is named once.
Ranking one_of_each_section(const std::vector<Passage>& passages, const Ranking& ranking);

}  // namespace llm::ask
