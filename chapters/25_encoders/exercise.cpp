#include "chapters/25_encoders/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 25.1 — predict: a text has ten tokens, 0 to 9, and a layer has a window of 3. How
// many tokens do token 0, token 5 and token 9 attend to? And token 5, if tokens 8 and 9 are
// padding?
Vector predicted_seen_keys() {
    TODO("predicted_seen_keys");
    // return {?, ?, ?, ?};
}

// Exercise 25.2 — predict: mask_tokens gets 1,000 tokens, none of them special, with the
// default probability. On average, how many labels are not ignored_label? How many inputs are
// replaced by the mask token, how many by a random token that is not the one before (V = 10),
// and how many of the labeled ones stay as they are?
Vector predicted_counts() {
    TODO("predicted_counts");
    // return {?, ?, ?, ?};
}

// Exercise 25.3 — find the bug. ModernBERT's vectors are the same with and without padding.
// BERT's are not: only those of the first text are.
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
        row.position_ids(0, i) = static_cast<Id>(i);
    }
    return row;
}

// Exercise 25.4 — write max_sim: one vector for a passage forgets its details. ColBERT keeps
// one for each token, and compares each token of the query with the most similar one of the
// passage.
double max_sim([[maybe_unused]] const Matrix& query, [[maybe_unused]] const Matrix& passage) {
    TODO("max_sim");
}

// Exercise 25.5 — write BM25+ from an empty file, in four steps. In how many documents is each
// word?
std::map<std::string, std::size_t> document_frequencies(
    [[maybe_unused]] const std::vector<Document>& documents) {
    TODO("document_frequencies");
}

// Step 2: the weight of a word that is in this many of the documents.
double inverse_document_frequency([[maybe_unused]] std::size_t num_documents,
                                  [[maybe_unused]] std::size_t document_frequency) {
    TODO("inverse_document_frequency");
}

// Step 3: what a word adds that is in a document term_frequency times. BM25+ adds delta if the
// word is there at all.
double term_weight([[maybe_unused]] const Bm25Plus& bm25,
                   [[maybe_unused]] std::size_t term_frequency,
                   [[maybe_unused]] std::size_t length, [[maybe_unused]] double mean_length) {
    TODO("term_weight");
}

// Step 4: the scores of all documents.
std::vector<double> scores([[maybe_unused]] const Bm25Plus& bm25,
                           [[maybe_unused]] const std::vector<Document>& documents,
                           [[maybe_unused]] const Document& query) {
    TODO("scores");
}

}  // namespace exercise
