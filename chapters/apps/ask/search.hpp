// Searches the passages of the pages for the answer to a question.
#pragma once

#include "chapters/25_encoders/retrieval.hpp"
#include "chapters/apps/ask/embedding_model.hpp"

namespace llm::ask {

// The words of a text to search for: their stems, without words that every question has ("why",
// "the").
std::vector<std::string> search_words(const std::string& text);
// A word without its ending, so that "scaled", "scales" and "scaling" are one. A dozen suffixes
// in place of Porter's rules (1980).
std::string stem(std::string word);

// Throws ValueError if the question has nothing but white space or more than 1,000 characters:
// long texts are similar to all passages.
void check_question(const std::string& question);

// Finds passages by their headings and text: by words, with BM25 and the k1 and b of Anserini's
// baselines; by vectors; and by both.
class BookIndex {
 public:
    BookIndex(std::vector<Passage> passages, EmbeddingModel model);

    const std::vector<Passage>& passages() const { return passages_; }
    // The best passages first, at most `count`.
    using Found = std::vector<ScoredDocument>;
    Found by_words(const std::string& question, std::size_t count) const;
    Found by_vectors(const std::string& question, std::size_t count) const;  // cosines
    // Reciprocal rank fusion of the first 100 of both, in which words count twice.
    Found joined(const std::string& question, std::size_t count) const;

 private:
    std::vector<Passage> passages_;
    Bm25Index index_;
    EmbeddingModel model_;
    models::FastEncoder fast_encoder_;
    Matrix vectors_;  // (N, C)
};

// The best passage of each section, in the order of the ranking: a section is named once.
Ranking one_of_each_section(const std::vector<Passage>& passages, const Ranking& ranking);

}  // namespace llm::ask
