// Chapter 25, exercises. Write your answers into exercise.cpp; ./learn exercise 25 checks them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "chapters/25_encoders/encoder.hpp"

namespace exercise {

using namespace llm;

Vector predicted_seen_keys();  // (4)
Vector predicted_counts();     // (4)
Vector predicted_tokens();     // (4)

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

// Cross-attention with its cache from an empty file, in four steps: one text, one head, and
// scores divided by √D, as in BART.
struct CrossAttentionHead {
    Linear q_proj, k_proj, v_proj;  // (D, C)
    Linear o_proj;                  // (C, D)
};
struct EncodedKeys {
    Matrix keys, values;  // (S, D)
};
EncodedKeys project_text(const CrossAttentionHead& head,
                         const Matrix& encoder_states);  // (S, C)
Matrix cross_weights(const Matrix& queries,              // (T, D)
                     const Matrix& keys,                 // (S, D)
                     const IdVector& padding_mask);      // (S), 0 for padding -> (T, S)
// An empty cache is filled; a full one is used, and encoder_states are not read.
Matrix cross_attention(const CrossAttentionHead& head,
                       const Matrix& hidden_states,         // (T, C), of the decoder
                       const Matrix& encoder_states,        // (S, C)
                       const IdVector& padding_mask,        // (S)
                       std::optional<EncodedKeys>& cache);  // -> (T, C)
// Of one token: products in matrix products, those of softmax and division left out.
std::uint64_t multiply_adds(std::uint64_t hidden_size, std::uint64_t head_dim,
                            std::uint64_t text_len, bool cache_is_full);

// In how many ways a word can be written as a sequence of tokens. The empty word can in one.
std::uint64_t num_segmentations(const std::string& word, const std::set<std::string>& tokens);

}  // namespace exercise
