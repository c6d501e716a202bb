#include "chapters/25_encoders/retrieval.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

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

std::vector<ScoredDocument> semantic_search(const Vector& query, const Matrix& embeddings,
                                            std::size_t count) {
    const auto [num_documents, width] = dims(embeddings);
    require(query.size() == width,
            "semantic_search: the query has {} numbers, but the embeddings have {}",
            query.size(), width);
    double query_square = 0;
    for (const Real q : query) query_square += double(q) * double(q);
    std::vector<ScoredDocument> documents;
    for (std::size_t n = 0; n < num_documents; ++n) {
        double product = 0, square = 0;
        for (std::size_t i = 0; i < width; ++i) {
            const double e = double(embeddings(n, i));
            product += double(query(i)) * e;
            square += e * e;
        }
        const double lengths = std::sqrt(query_square) * std::sqrt(square);
        documents.push_back({n, lengths > 0 ? product / lengths : 0});
    }
    return best_first(std::move(documents), count);
}

Ranking ranking_of(const std::vector<ScoredDocument>& documents) {
    Ranking ranking;
    for (const ScoredDocument& found : documents) ranking.push_back(found.document);
    return ranking;
}

namespace {

void check_ranking(const Ranking& ranking) {
    std::set<std::size_t> seen;
    for (const std::size_t document : ranking)
        require(seen.insert(document).second, "document {} is in a ranking twice", document);
}

void check_relevance(const Relevance& relevance) {
    double highest = 0;
    for (const auto& [document, grade] : relevance) {
        require(grade >= 0 && std::isfinite(grade),
                "the grade of document {} is {}, but must be 0 or more", document,
                brief(grade));
        highest = std::max(highest, grade);
    }
    require(highest > 0, "none of {} documents with a grade is relevant", relevance.size());
}

void check_judged(std::size_t k, const Ranking& ranking, const Relevance& relevance) {
    require(k > 0, "a score of the first k documents needs a k above 0");
    check_ranking(ranking);
    check_relevance(relevance);
}

double grade_of(std::size_t document, const Relevance& relevance) {
    const auto found = relevance.find(document);
    return found == relevance.end() ? 0 : found->second;
}

// The sum of grade / log2(rank + 1) over the first k. Ranks begin with 1.
double discounted_cumulative_gain(std::size_t k, const std::vector<double>& grades) {
    double gain = 0;
    for (std::size_t i = 0; i < std::min(k, grades.size()); ++i)
        gain += grades[i] / std::log2(double(i + 1) + 1);
    return gain;
}

}  // namespace

std::vector<ScoredDocument> reciprocal_rank_fusion(const std::vector<Ranking>& rankings,
                                                   double k) {
    require(k >= 0 && std::isfinite(k),
            "reciprocal_rank_fusion: k is {}, but must be 0 or more", brief(k));
    std::map<std::size_t, double> scores;
    for (const Ranking& ranking : rankings) {
        check_ranking(ranking);
        for (std::size_t i = 0; i < ranking.size(); ++i)
            scores[ranking[i]] += 1 / (k + double(i + 1));
    }
    std::vector<ScoredDocument> documents;
    for (const auto& [document, score] : scores) documents.push_back({document, score});
    return best_first(documents, documents.size());
}

double recall_at(std::size_t k, const Ranking& ranking, const Relevance& relevance) {
    check_judged(k, ranking, relevance);
    std::size_t num_relevant = 0, num_found = 0;
    for (const auto& [document, grade] : relevance) num_relevant += grade > 0 ? 1 : 0;
    for (std::size_t i = 0; i < std::min(k, ranking.size()); ++i)
        num_found += grade_of(ranking[i], relevance) > 0 ? 1 : 0;
    return double(num_found) / double(num_relevant);
}

double ndcg_at(std::size_t k, const Ranking& ranking, const Relevance& relevance) {
    check_judged(k, ranking, relevance);
    std::vector<double> grades, ideal;
    for (const std::size_t document : ranking) grades.push_back(grade_of(document, relevance));

    // The best ranking has all judged documents, sorted by their grades.
    for (const auto& [document, grade] : relevance) ideal.push_back(grade);
    std::sort(ideal.begin(), ideal.end(), std::greater<>());
    return discounted_cumulative_gain(k, grades) / discounted_cumulative_gain(k, ideal);
}

double reciprocal_rank(const Ranking& ranking, const Relevance& relevance) {
    check_judged(1, ranking, relevance);
    for (std::size_t i = 0; i < ranking.size(); ++i)
        if (grade_of(ranking[i], relevance) > 0) return 1 / double(i + 1);
    return 0;
}

double mean_reciprocal_rank(const std::vector<Ranking>& rankings,
                            const std::vector<Relevance>& relevance) {
    require(!rankings.empty() && rankings.size() == relevance.size(),
            "mean_reciprocal_rank: {} rankings and {} judgments", rankings.size(),
            relevance.size());
    double sum = 0;
    for (std::size_t n = 0; n < rankings.size(); ++n)
        sum += reciprocal_rank(rankings[n], relevance[n]);
    return sum / double(rankings.size());
}

PairedDifference bootstrap_mean(const std::vector<double>& given, std::uint32_t seed,
                                std::size_t num_resamples) {
    require(!given.empty(), "bootstrap_mean: there are no scores");
    Generator generator(seed);
    const Vector zeros = xt::zeros<Real>({given.size()});
    Vector scores = zeros;
    std::copy(given.begin(), given.end(), scores.begin());
    return paired_bootstrap(zeros, scores, generator, num_resamples);
}

}  // namespace llm
