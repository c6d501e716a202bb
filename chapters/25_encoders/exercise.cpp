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
// default probability. On average, how many labels are not ignored_label? How many inputs
// become the mask token, how many another token than before (V = 10), and how many of the
// labeled ones stay as they are?
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

// Exercise 25.6 — write cross-attention with its cache from an empty file, in four steps. What
// is computed once for a text?
EncodedKeys project_text([[maybe_unused]] const CrossAttentionHead& head,
                         [[maybe_unused]] const Matrix& encoder_states) {
    TODO("project_text");
}

// Step 2: the weights of one head. Each row sums to 1, and padding has none.
Matrix cross_weights([[maybe_unused]] const Matrix& queries,
                     [[maybe_unused]] const Matrix& keys,
                     [[maybe_unused]] const IdVector& padding_mask) {
    TODO("cross_weights");
}

// Step 3: the layer, with the cache.
Matrix cross_attention([[maybe_unused]] const CrossAttentionHead& head,
                       [[maybe_unused]] const Matrix& hidden_states,
                       [[maybe_unused]] const Matrix& encoder_states,
                       [[maybe_unused]] const IdVector& padding_mask,
                       [[maybe_unused]] std::optional<EncodedKeys>& cache) {
    TODO("cross_attention");
}

// Step 4: what one token costs.
std::uint64_t multiply_adds([[maybe_unused]] std::uint64_t hidden_size,
                            [[maybe_unused]] std::uint64_t head_dim,
                            [[maybe_unused]] std::uint64_t text_len,
                            [[maybe_unused]] bool cache_is_full) {
    TODO("multiply_adds");
}

// Exercise 25.7 — predict: a ViT with patches of 16 x 16 pixels reads a picture of 224 x 224
// pixels and 3 channels. How many tokens do its layers see? How many numbers does a patch have?
// How many tokens has a picture of 448 x 448? Without the class token, how many times fewer
// scores does a head have there if a patch attends only to those of its window of 7 x 7
// patches?
Vector predicted_tokens() {
    TODO("predicted_tokens");
    // return {?, ?, ?, ?};
}

// Exercise 25.8 — write num_segmentations: in how many ways can Unigram write a word? A word of
// 60 letters can have more segmentations than you can list.
std::uint64_t num_segmentations([[maybe_unused]] const std::string& word,
                                [[maybe_unused]] const std::set<std::string>& tokens) {
    TODO("num_segmentations");
}

}  // namespace exercise
