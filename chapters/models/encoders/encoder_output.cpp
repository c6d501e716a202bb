#include "chapters/models/encoders/encoder_output.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/11_generation/sampling.hpp"
#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/activations.hpp"
#include "common/output/show.hpp"
#include "common/tensors/argsort.hpp"
#include "common/tensors/matmul.hpp"

namespace llm::models {
namespace {

constexpr std::size_t num_shown = 5;  // most likely tokens or labels

// The largest logit of each token. Padding has none.
IdMatrix most_likely_tokens(const Tensor3& logits, const BatchEncoding& batch,
                            Id pad_token_id) {
    const std::size_t vocab_size = logits.shape(2);
    IdMatrix tokens(batch.input_ids.shape());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const Real* row = logits.data() + i * vocab_size;
        tokens.data()[i] = batch.padding_mask.data()[i] == 0
                               ? pad_token_id
                               : Id(std::max_element(row, row + vocab_size) - row);
    }
    return tokens;
}

// "stars 4.2000, length 0.3000".
std::string numbers_by_name(const Vector& values,
                            const std::function<std::string(std::size_t)>& name_of) {
    std::string text;
    for (std::size_t n = 0; n < values.size(); ++n)
        text += (n == 0 ? "" : ", ") + name_of(n) + " " + fixed(double(values(n)), 4);
    return text;
}

void show_labels(const Matrix& logits, const EncoderFamilyConfig& config) {
    const Matrix scores = label_scores(logits, config);
    const auto name_of = [&](std::size_t n) { return config.label(n); };
    const bool is_regression = config.problem_type == ProblemType::regression;
    std::vector<TableRow> rows;
    for (std::size_t b = 0; b < scores.shape(0); ++b) {
        const Vector row = xt::view(scores, b);
        rows.push_back({to_text(b), is_regression ? numbers_by_name(row, name_of)
                                                  : percentages(row, num_shown, name_of)});
    }
    show_table({"text", is_regression ? "labels" : "% of the most likely labels"}, rows);
}

void show_tokens(const EncoderInput& input) {
    const BatchEncoding& batch = input.batch;
    std::vector<TableRow> rows;
    for (std::size_t b = 0; b < batch.input_ids.shape(0); ++b) {
        std::string tokens;
        for (std::size_t t = 0; t < batch.input_ids.shape(1); ++t)
            if (batch.padding_mask(b, t) != 0)
                tokens +=
                    (t == 0 ? "" : " ") + spelling_of(*input.tokenizer, batch.input_ids(b, t));
        rows.push_back({to_text(b), tokens});
    }
    show_table({"text", "tokens"}, rows);
}

// What the model would put where a token is masked.
void show_filled_masks(const EncoderInput& input, const Tensor3& logits) {
    if (!input.mask_token_id)
        return show("masked tokens", "the tokenizer has no token for them");
    std::vector<TableRow> rows;
    for (std::size_t b = 0; b < logits.shape(0); ++b)
        for (std::size_t t = 0; t < logits.shape(1); ++t) {
            if (input.batch.input_ids(b, t) != *input.mask_token_id) continue;
            const Vector row = xt::view(logits, b, t);  // (V)
            rows.push_back({to_text(b), to_text(t),
                            percentages(softmax(row), num_shown, [&](std::size_t id) {
                                return spelling_of(*input.tokenizer, Id(id));
                            })});
        }
    const std::string mask = spelling_of(*input.tokenizer, *input.mask_token_id);
    if (rows.empty()) return show("masked tokens", "none; " + mask + " hides a token");
    show_table({"text", "position", "% of the most likely tokens"}, rows);
}

void show_next_sentences(const Matrix& logits) {
    const Matrix probabilities = softmax(logits);  // (B, 2)
    std::vector<TableRow> rows;
    for (std::size_t b = 0; b < logits.shape(0); ++b)
        rows.push_back({to_text(b), fixed(100 * double(probabilities(b, 0)), 1)});
    show_table({"text", "% that the second one follows"}, rows);
}

void show_text_vectors(const EncoderInput& input, const Tensor3& last_hidden_state) {
    const SentenceTransformer& model = input.vectors;
    Matrix vectors = pool(model.pooling, last_hidden_state, input.batch.padding_mask);
    if (model.normalize) vectors = l2_normalize(vectors);
    show("sentence_embedding", vectors);  // (B, C)
    std::string names;
    for (const auto& [name, prompt] : model.prompts)
        names += prompt.empty() ? "" : (names.empty() ? "" : ", ") + name;
    if (!names.empty()) show("prompts, which --prompt-name puts before the texts", names);
    if (vectors.shape(0) < 2) return;
    const Matrix compared = model.has_dot_products ? vectors : l2_normalize(vectors);
    std::vector<std::string> texts;
    for (std::size_t b = 0; b < vectors.shape(0); ++b) texts.push_back("text " + to_text(b));
    show(model.has_dot_products ? "dot_products" : "cosines",
         matmul_transposed(compared, compared), texts, texts);  // (B, B)
}

void show_heads(const EncoderOutputs& outputs, const EncoderInput& input,
                const EncoderFamilyConfig& config) {
    if (outputs.mlm_logits) {
        show("mlm_logits", *outputs.mlm_logits);
        show("most_likely_tokens",
             most_likely_tokens(*outputs.mlm_logits, input.batch, config.pad_token_id));
        if (input.tokenizer) show_filled_masks(input, *outputs.mlm_logits);
    }
    if (outputs.nsp_logits) {
        show("nsp_logits", *outputs.nsp_logits);
        if (input.has_pairs) show_next_sentences(*outputs.nsp_logits);
    }
    if (!outputs.logits) return;
    show("logits", *outputs.logits);
    show_labels(*outputs.logits, config);
}

}  // namespace

void show_outputs(const AnyEncoder& encoder, const EncoderInput& input) {
    const EncoderFamilyConfig& config = config_of(encoder);
    const BatchEncoding& batch = input.batch;
    const std::size_t num_texts = batch.input_ids.shape(0);
    step("What it computes for " + to_text(num_texts) +
         (input.has_pairs ? (num_texts == 1 ? " pair" : " pairs")
                          : (num_texts == 1 ? " text" : " texts")));
    if (input.tokenizer) show_tokens(input);
    const EncoderOutputs outputs = encode(encoder, batch);
    show("input_ids", batch.input_ids);
    show("attention_mask", batch.padding_mask);
    if (config.type_vocab_size > 0) show("token_type_ids", batch.token_type_ids);
    show("last_hidden_state", outputs.last_hidden_state);
    if (outputs.pooler_output) show("pooler_output", *outputs.pooler_output);
    show_heads(outputs, input, config);
    if (input.tokenizer && !input.has_pairs)
        show_text_vectors(input, outputs.last_hidden_state);
}

Matrix label_scores(const Matrix& logits, const EncoderFamilyConfig& config) {
    if (config.problem_type == ProblemType::regression) return logits;
    if (config.problem_type == ProblemType::single_label && logits.shape(1) > 1)
        return softmax(logits);
    Matrix scores = logits;
    for (Real& x : scores) x = 1 / (1 + std::exp(-x));
    return scores;
}

std::string percentages(const Vector& probabilities, std::size_t count,
                        const std::function<std::string(std::size_t)>& name_of) {
    std::string text;
    for (const std::size_t n : argsort_descending(probabilities, count))
        text += (text.empty() ? "" : ", ") + name_of(n) + " " +
                fixed(100 * double(probabilities(n)), 1);
    return text;
}

}  // namespace llm::models
