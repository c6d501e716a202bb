// Chapter 25, file 3 of 7: masked-language modeling: hide some tokens of a text, and predict
// them from both sides.
#pragma once

#include "chapters/25_encoders/encoder.hpp"

namespace llm {

// From a token's vector to logits over the vocabulary: a linear layer, the activation and a
// norm, then the word embeddings as a matrix of outputs, with a bias. Source: Hugging Face,
// BertLMPredictionHead, ModernBertPredictionHead.
struct MaskedLMHead {
    Linear dense;  // (C, C)
    LayerNorm norm;
    Activation activation = GELU;
    Linear decoder;  // (V, C); a weight of no elements: the word embeddings
};
// What the head computes of N rows before its decoder. The backward pass needs all of it.
struct MaskedLMHeadActivations {
    Matrix input;      // (N, C)
    Matrix projected;  // (N, C): after dense
    Matrix activated;  // (N, C): after the activation
    Matrix features;   // (N, C): after the norm
};

// Its output matrix, and the logits of each position of an encoder's output.
const Matrix& decoder_weight(const MaskedLMHead& head,
                             const Matrix& word_embeddings);  // (V, C) -> (V, C)
Tensor3 masked_lm_logits(const MaskedLMHead& head,
                         const Matrix& word_embeddings,  // (V, C)
                         const Tensor3& hidden_states);  // (B, T, C) -> (B, T, V)

// An encoder with this head. Source: Hugging Face, BertForMaskedLM.
template <class Block>
struct MaskedLM {
    Encoder<Block> encoder;
    MaskedLMHead head;

    const Matrix& decoder_weight() const {  // (V, C)
        return llm::decoder_weight(head, encoder.embeddings.word_embeddings);
    }
    // The logits of each position.
    Tensor3 operator()(const BatchEncoding& batch) const {  // -> (B, T, V)
        return masked_lm_logits(head, encoder.embeddings.word_embeddings, encoder(batch));
    }
};

// A head with weights 0 and norms 1, tied to the word embeddings.
MaskedLMHead empty_head(const EncoderConfig& config);

// A label for positions that are not predicted. Source: torch.nn.functional.cross_entropy,
// ignore_index.
inline constexpr Id ignored_label = -100;

// Chooses tokens to predict, each with this probability: their labels are the tokens, those of
// all others are ignored_label. Of the chosen ones, 80 % become the mask token, 10 % a random
// token and 10 % stay. Special tokens and padding are never chosen. Source: "BERT" (Devlin et
// al., 2018), section 3.1; Hugging Face, DataCollatorForLanguageModeling. mask_tokens throws
// ValueError if vocab_size is 0.
struct MaskingOptions {
    Id mask_token_id = 0;
    std::size_t vocab_size = 0;      // V: random tokens are 0 to V - 1
    std::vector<Id> special_tokens;  // never chosen: [CLS], [SEP], [PAD]
    Real probability = Real(0.15);   // ModernBERT: 0.3
};
struct MaskedBatch {
    BatchEncoding inputs;
    IdMatrix labels;  // (B, T)
};
MaskedBatch mask_tokens(const BatchEncoding& batch, const MaskingOptions& options,
                        Generator& generator);

// The mean cross-entropy of the positions with a label. forward_backward accumulates its
// gradient. Logits are computed for these positions alone. Throw ValueError if there is none.
template <class Block>
double masked_lm_loss(const MaskedLM<Block>& model, const MaskedBatch& batch);
template <class Block>
double forward_backward(const MaskedLM<Block>& model, const MaskedBatch& batch,
                        MaskedLM<Block>& gradient);

// Its parts: the head, and the rows with a label, in order.
MaskedLMHeadActivations head_features(const MaskedLMHead& head, const Matrix& rows);  // (N, C)
Matrix features_backward(const MaskedLMHead& head, const MaskedLMHeadActivations& saved,
                         const Matrix& features_gradient,  // (N, C)
                         MaskedLMHead& gradient);          // -> (N, C)
Matrix decoder_logits(const MaskedLMHead& head, const Matrix& decoder_weight,
                      const Matrix& features);  // (N, C) -> (N, V)
Matrix head_backward(const MaskedLMHead& head, const Matrix& decoder_weight,
                     const MaskedLMHeadActivations& saved,
                     const Matrix& logits_gradient,                      // (N, V)
                     MaskedLMHead& gradient, Matrix& decoder_gradient);  // -> (N, C)
struct LabeledRows {
    std::vector<std::size_t> rows;  // of B*T
    IdVector labels;                // (N)
};
LabeledRows labeled_rows(const IdMatrix& labels);                                 // (B, T)
Matrix gather_rows(const Tensor3& states, const std::vector<std::size_t>& rows);  // -> (N, C)
Tensor3 scatter_rows(const Matrix& rows_gradient, const std::vector<std::size_t>& rows,
                     const std::array<std::size_t, 3>& shape);  // (N, C) -> (B, T, C)

template <class Block>
std::vector<Parameter> named_parameters(MaskedLM<Block>& model) {
    ParameterList list;
    add_parameters(list, "encoder", model.encoder);
    add_parameters(list, "head.dense", model.head.dense);
    add_parameters(list, "head.norm", model.head.norm);
    if (model.head.decoder.weight.size() > 0)
        add_tensor(list, "head.decoder.weight", model.head.decoder.weight);
    if (model.head.decoder.bias)
        add_tensor(list, "head.decoder.bias", *model.head.decoder.bias);
    return list;
}

template <class Block>
double masked_lm_loss(const MaskedLM<Block>& model, const MaskedBatch& batch) {
    const auto [rows, labels] = labeled_rows(batch.labels);
    const Matrix features =
        head_features(model.head, gather_rows(model.encoder(batch.inputs), rows)).features;
    return cross_entropy(decoder_logits(model.head, model.decoder_weight(), features), labels);
}

template <class Block>
double forward_backward(const MaskedLM<Block>& model, const MaskedBatch& batch,
                        MaskedLM<Block>& gradient) {
    const auto [rows, labels] = labeled_rows(batch.labels);
    const auto [output, saved] = encoder_forward(model.encoder, batch.inputs);
    const MaskedLMHeadActivations head = head_features(model.head, gather_rows(output, rows));
    const Matrix logits = decoder_logits(model.head, model.decoder_weight(), head.features);

    // A tied decoder adds its gradient to that of the word embeddings.
    Matrix& decoder_gradient = gradient.head.decoder.weight.size() > 0
                                   ? gradient.head.decoder.weight
                                   : gradient.encoder.embeddings.word_embeddings;
    const Matrix rows_gradient =
        head_backward(model.head, model.decoder_weight(), head,
                      cross_entropy_backward(logits, labels), gradient.head, decoder_gradient);
    encoder_backward(model.encoder, saved, scatter_rows(rows_gradient, rows, output.shape()),
                     gradient.encoder);
    return cross_entropy(logits, labels);
}

extern template struct MaskedLM<BertBlock>;
extern template struct MaskedLM<ModernBertBlock>;
extern template double masked_lm_loss(const MaskedLM<ModernBertBlock>&, const MaskedBatch&);
extern template double forward_backward(const MaskedLM<ModernBertBlock>&, const MaskedBatch&,
                                        MaskedLM<ModernBertBlock>&);

}  // namespace llm
