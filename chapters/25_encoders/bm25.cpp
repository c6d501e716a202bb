#include "chapters/25_encoders/bm25.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "common/files/regex.hpp"
#include "common/files/unicode_properties.hpp"
#include "common/output/show.hpp"

namespace llm {

std::vector<std::string> words(const std::string& text) {
    static const Pattern pattern(R"([\p{L}\p{M}\p{N}]+)");
    const std::string lower = lower_case(text);
    std::vector<std::string> result;
    for (const auto& [begin, end] : pattern.matches(lower))
        result.push_back(lower.substr(begin, end - begin));
    return result;
}

std::vector<ScoredDocument> best_first(std::vector<ScoredDocument> documents,
                                       std::size_t count) {
    const auto end =
        documents.begin() + static_cast<std::ptrdiff_t>(std::min(count, documents.size()));
    std::partial_sort(documents.begin(), end, documents.end(),
                      [](const ScoredDocument& a, const ScoredDocument& b) {
                          return a.score != b.score ? a.score > b.score
                                                    : a.document < b.document;
                      });
    documents.erase(end, documents.end());
    return documents;
}

Bm25Index::Bm25Index(const std::vector<std::vector<std::string>>& documents,
                     const Bm25Parameters& parameters)
    : parameters_(parameters) {
    const auto [k1, b] = parameters;
    require(k1 >= 0 && std::isfinite(k1) && b >= 0 && b <= 1,
            "Bm25Index: k1 must be 0 or more and b from 0 to 1, but they are {} and {}",
            brief(k1), brief(b));

    // For each word of a document, add a posting with its count.
    for (std::size_t document = 0; document < documents.size(); ++document) {
        std::map<std::string, std::size_t> term_frequencies;
        for (const std::string& word : documents[document]) ++term_frequencies[word];
        for (const auto& [word, count] : term_frequencies)
            postings_[word].push_back({document, count});
        lengths_.push_back(documents[document].size());
    }
    const std::size_t total = std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0});
    if (!lengths_.empty()) mean_length_ = double(total) / double(lengths_.size());
}

double Bm25Index::idf(const std::string& word) const {
    const auto found = postings_.find(word);
    const double n = found == postings_.end() ? 0 : double(found->second.size());
    return std::log(1 + (double(lengths_.size()) - n + 0.5) / (n + 0.5));
}

double Bm25Index::term_score(const Posting& posting) const {
    // The length is not 0, because the document has the word. So neither is the mean.
    const auto [k1, b] = parameters_;
    const double tf = double(posting.term_frequency);
    const double relative_length = double(lengths_[posting.document]) / mean_length_;
    return tf * (k1 + 1) / (tf + k1 * (1 - b + b * relative_length));
}

std::vector<ScoredDocument> Bm25Index::search(const std::vector<std::string>& query,
                                              std::size_t count) const {
    // Add up the scores of the documents that are in the list of one of the words.
    std::map<std::size_t, double> scores;
    for (const std::string& word : query) {
        const auto found = postings_.find(word);
        if (found == postings_.end()) continue;
        const double weight = idf(word);
        for (const Posting& posting : found->second)
            scores[posting.document] += weight * term_score(posting);
    }
    std::vector<ScoredDocument> documents;
    for (const auto& [document, score] : scores) documents.push_back({document, score});
    return best_first(std::move(documents), count);
}

}  // namespace llm
