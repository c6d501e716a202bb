// Chapter 25, exercises. Write your answers into exercise.cpp; ./learn exercise 25 checks them.
#pragma once

#include <map>
#include <string>

#include "chapters/25_encoders/encoder.hpp"

namespace exercise {

using namespace llm;

Vector predicted_seen_keys();  // (4)
Vector predicted_counts();     // (4)

// The tokens of all texts in one row, as unpad of the lesson returns them.
BatchEncoding unpad(const BatchEncoding& batch);

// The score of a passage for a query, from the vectors of their tokens, which have length 1.
// Throws ValueError unless both are as wide and have a token.
double max_sim(const Matrix& query,     // (T, C)
               const Matrix& passage);  // (S, C)

// BM25+ from an empty file, in four steps. A document is its list of words.
using Document = std::vector<std::string>;
std::map<std::string, std::size_t> document_frequencies(const std::vector<Document>& documents);
double inverse_document_frequency(std::size_t num_documents, std::size_t document_frequency);
struct Bm25Plus {
    double k1 = 1.2, b = 0.75, delta = 1;
};
double term_weight(const Bm25Plus& bm25, std::size_t term_frequency, std::size_t length,
                   double mean_length);
std::vector<double> scores(const Bm25Plus& bm25, const std::vector<Document>& documents,
                           const Document& query);  // one for each document

}  // namespace exercise
