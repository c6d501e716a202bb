#include "chapters/25_encoders/masked_lm.hpp"

#include <algorithm>

#include "common/tensors/matmul.hpp"

namespace llm {

MaskedLMHead empty_head(const EncoderConfig& config) {
    const std::size_t C = config.hidden_size;
    MaskedLMHead head{{xt::zeros<Real>({C, C}), std::nullopt},
                      make_layer_norm(C, config.layer_norm_eps),
                      config.hidden_act,
                      {{}, xt::zeros<Real>({config.vocab_size})}};
    if (config.has_bias)
        head.dense.bias = xt::zeros<Real>({C});
    else
        head.norm.bias = std::nullopt;
    return head;
}

MaskedBatch mask_tokens(const BatchEncoding& batch, const MaskingOptions& options,
                        Generator& generator) {
    require(options.vocab_size > 0, "mask_tokens: vocab_size must not be 0");
    MaskedBatch masked{batch, IdMatrix(batch.input_ids.shape(), ignored_label)};
    const std::vector<Id>& special = options.special_tokens;
    for (std::size_t i = 0; i < batch.input_ids.size(); ++i) {
        const Id token = batch.input_ids.data()[i];
        const bool is_special = std::count(special.begin(), special.end(), token) > 0;
        if (batch.padding_mask.data()[i] == 0 || is_special) continue;
        if (generator.next_uniform() >= options.probability) continue;

        // The model cannot know whether a token that it sees is the right one, so it has to
        // predict all of them from their neighbors.
        masked.labels.data()[i] = token;
        Id& input = masked.inputs.input_ids.data()[i];
        const float choice = generator.next_uniform();
        if (choice < 0.8f)
            input = options.mask_token_id;
        else if (choice < 0.9f)
            input = static_cast<Id>(generator.next_32_bits() % options.vocab_size);
    }
    return masked;
}

MaskedLMHeadActivations head_features(const MaskedLMHead& head, const Matrix& rows) {
    MaskedLMHeadActivations saved{rows, head.dense(rows), {}, {}};
    saved.activated = saved.projected;
    for (Real& x : saved.activated) x = head.activation.function(x);
    saved.features = head.norm(saved.activated);
    return saved;
}

Matrix decoder_logits(const MaskedLMHead& head, const Matrix& decoder_weight,
                      const Matrix& features) {
    Matrix logits = matmul_transposed(features, decoder_weight);  // (N, V)
    if (head.decoder.bias) logits = logits + *head.decoder.bias;
    return logits;
}

const Matrix& decoder_weight(const MaskedLMHead& head, const Matrix& word_embeddings) {
    return head.decoder.weight.size() > 0 ? head.decoder.weight : word_embeddings;
}

Tensor3 masked_lm_logits(const MaskedLMHead& head, const Matrix& word_embeddings,
                         const Tensor3& hidden_states) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Matrix rows = reshape(hidden_states, {batch_size * seq_len, width});
    const Matrix& weight = decoder_weight(head, word_embeddings);
    Matrix logits = decoder_logits(head, weight, head_features(head, rows).features);
    return reshape(std::move(logits), {batch_size, seq_len, weight.shape(0)});
}

Matrix head_backward(const MaskedLMHead& head, const Matrix& decoder_weight,
                     const MaskedLMHeadActivations& saved, const Matrix& logits_gradient,
                     MaskedLMHead& gradient, Matrix& decoder_gradient) {
    // The decoder: a linear layer whose weight may be the word embeddings.
    accumulate_product(decoder_gradient, logits_gradient, saved.features);
    if (head.decoder.bias) accumulate_rows(*gradient.decoder.bias, logits_gradient);
    return features_backward(head, saved, matmul(logits_gradient, decoder_weight), gradient);
}

Matrix features_backward(const MaskedLMHead& head, const MaskedLMHeadActivations& saved,
                         const Matrix& features_gradient, MaskedLMHead& gradient) {
    // Norm, activation and linear layer, last to first.
    Matrix hidden_gradient =
        norm_backward(head.norm, saved.activated, features_gradient, gradient.norm);
    for (std::size_t i = 0; i < hidden_gradient.size(); ++i)
        hidden_gradient.data()[i] *= head.activation.derivative(saved.projected.data()[i]);
    return linear_backward(head.dense, saved.input, hidden_gradient, gradient.dense);
}

LabeledRows labeled_rows(const IdMatrix& labels) {
    std::vector<std::size_t> rows;
    std::vector<Id> found;
    for (std::size_t i = 0; i < labels.size(); ++i)
        if (labels.data()[i] != ignored_label) {
            rows.push_back(i);
            found.push_back(labels.data()[i]);
        }
    require(!rows.empty(), "masked_lm: no position of a batch of {} has a label",
            labels.shape());
    IdVector result(std::array{found.size()});
    std::copy(found.begin(), found.end(), result.begin());
    return {std::move(rows), std::move(result)};
}

Matrix gather_rows(const Tensor3& states, const std::vector<std::size_t>& rows) {
    const std::size_t width = states.shape(2);
    Matrix gathered(std::array{rows.size(), width});
    for (std::size_t n = 0; n < rows.size(); ++n)
        std::copy_n(states.data() + rows[n] * width, width, gathered.data() + n * width);
    return gathered;
}

Tensor3 scatter_rows(const Matrix& rows_gradient, const std::vector<std::size_t>& rows,
                     const std::array<std::size_t, 3>& shape) {
    Tensor3 gradient = xt::zeros<Real>(shape);
    const std::size_t width = shape[2];
    for (std::size_t n = 0; n < rows.size(); ++n)
        std::copy_n(rows_gradient.data() + n * width, width, gradient.data() + rows[n] * width);
    return gradient;
}

template struct MaskedLM<BertBlock>;
template struct MaskedLM<ModernBertBlock>;
template double masked_lm_loss(const MaskedLM<ModernBertBlock>&, const MaskedBatch&);
template double forward_backward(const MaskedLM<ModernBertBlock>&, const MaskedBatch&,
                                 MaskedLM<ModernBertBlock>&);

}  // namespace llm
