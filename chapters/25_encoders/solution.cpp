#include <algorithm>
#include <cmath>
#include <set>

#include "chapters/25_encoders/exercise.hpp"

namespace exercise {

// Exercise 25.1 — predict: at both ends, the window is cut off.
Vector predicted_seen_keys() { return {4, 7, 4, 6}; }

// Exercise 25.2 — predict: of the tenth that becomes a random token, a tenth is the same token
// again.
Vector predicted_counts() { return {150, 120, 13.5, 16.5}; }

// Exercise 25.3 — find the bug. The positions begin at 0 in each text. RoPE sees only
// differences of positions within a text, so it did not notice.
BatchEncoding unpad(const BatchEncoding& batch) {
    BatchEncoding row;
    row.cu_seqlens = {0};
    std::vector<std::size_t> kept;  // indices of tokens
    for (std::size_t b = 0; b < batch.input_ids.shape(0); ++b) {
        for (std::size_t t = 0; t < batch.input_ids.shape(1); ++t)
            if (batch.padding_mask(b, t) != 0) kept.push_back(b * batch.input_ids.shape(1) + t);
        row.cu_seqlens.push_back(kept.size());
    }
    row.input_ids = row.padding_mask = row.token_type_ids = row.position_ids =
        xt::ones<Id>({std::size_t{1}, kept.size()});
    for (std::size_t i = 0; i < kept.size(); ++i) {
        row.input_ids(0, i) = batch.input_ids.data()[kept[i]];
        row.token_type_ids(0, i) = batch.token_type_ids.data()[kept[i]];
        row.position_ids(0, i) = batch.position_ids.data()[kept[i]];
    }
    return row;
}

// Exercise 25.4 — write max_sim.
double max_sim(const Matrix& query, const Matrix& passage) {
    require(query.shape(1) == passage.shape(1) && query.shape(0) > 0 && passage.shape(0) > 0,
            "max_sim: queries of {} do not match passages of {}", query.shape(),
            passage.shape());
    double score = 0;
    for (std::size_t t = 0; t < query.shape(0); ++t) {
        double best = -2;
        for (std::size_t s = 0; s < passage.shape(0); ++s) {
            double product = 0;
            for (std::size_t c = 0; c < query.shape(1); ++c)
                product +=
                    static_cast<double>(query(t, c)) * static_cast<double>(passage(s, c));
            best = std::max(best, product);
        }
        score += best;
    }
    return score;
}

// Exercise 25.5 — write BM25+. A word counts once in a document.
std::map<std::string, std::size_t> document_frequencies(
    const std::vector<Document>& documents) {
    std::map<std::string, std::size_t> frequencies;
    for (const Document& document : documents)
        for (const std::string& word : std::set<std::string>(document.begin(), document.end()))
            ++frequencies[word];
    return frequencies;
}

double inverse_document_frequency(std::size_t num_documents, std::size_t document_frequency) {
    const double N = static_cast<double>(num_documents);
    const double n = static_cast<double>(document_frequency);
    return std::log(1 + (N - n + 0.5) / (n + 0.5));
}

double term_weight(const Bm25Plus& bm25, std::size_t term_frequency, std::size_t length,
                   double mean_length) {
    if (term_frequency == 0) return 0;
    const double tf = static_cast<double>(term_frequency);
    const double relative_length = static_cast<double>(length) / mean_length;
    return bm25.delta +
           tf * (bm25.k1 + 1) / (tf + bm25.k1 * (1 - bm25.b + bm25.b * relative_length));
}

std::vector<double> scores(const Bm25Plus& bm25, const std::vector<Document>& documents,
                           const Document& query) {
    const auto frequencies = document_frequencies(documents);
    double total_length = 0;
    for (const Document& document : documents) total_length += double(document.size());
    const double mean_length = total_length / double(documents.size());
    std::vector<double> result;
    for (const Document& document : documents) {
        double score = 0;
        for (const std::string& word : query) {
            const auto found = frequencies.find(word);
            if (found == frequencies.end()) continue;
            const auto count = std::count(document.begin(), document.end(), word);
            score += inverse_document_frequency(documents.size(), found->second) *
                     term_weight(bm25, std::size_t(count), document.size(), mean_length);
        }
        result.push_back(score);
    }
    return result;
}

}  // namespace exercise
