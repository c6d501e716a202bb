#include "chapters/25_encoders/encoder.hpp"

#include <algorithm>

#include "chapters/01_masking/masking.hpp"

namespace llm {
namespace {

// A table of angles 0, which rotates nothing: BERT adds its positions to the embeddings.
RotaryTable rotary_table_of(const EncoderConfig& config, std::optional<Real> rope_theta,
                            std::size_t num_positions) {
    const std::size_t head_dim = config.hidden_size / config.num_attention_heads;
    Vector frequencies = xt::zeros<Real>({head_dim / 2});
    if (rope_theta) frequencies = inverse_frequencies(head_dim, *rope_theta);
    return make_rotary_table(frequencies, num_positions);
}

LayerNorm norm_of(const EncoderConfig& config) {
    LayerNorm norm = make_layer_norm(config.hidden_size, config.layer_norm_eps);
    if (!config.has_bias) norm.bias = std::nullopt;
    return norm;
}

EncoderAttention attention_of(const EncoderConfig& config, std::size_t layer) {
    const std::size_t C = config.hidden_size, H = config.num_attention_heads;
    const Linear square = zero_linear(C, C, config.has_bias);
    return {AttentionLayer{H, H, {square, square, square, square}},
            config.windowed && config.windowed->has_window(layer)};
}

EncoderEmbeddings embeddings_of(const EncoderConfig& config) {
    const std::size_t C = config.hidden_size;
    EncoderEmbeddings embeddings{xt::zeros<Real>({config.vocab_size, C}), std::nullopt,
                                 std::nullopt, norm_of(config)};
    if (!config.rope_theta)
        embeddings.position_embeddings = xt::zeros<Real>({config.max_position_embeddings, C});
    if (config.type_vocab_size > 0)
        embeddings.token_type_embeddings = xt::zeros<Real>({config.type_vocab_size, C});
    return embeddings;
}

}  // namespace

EncoderConfig validate(const EncoderConfig& config) {
    const std::size_t C = config.hidden_size, H = config.num_attention_heads;
    require(config.vocab_size > 0 && C > 0 && config.intermediate_size > 0 && H > 0 &&
                config.max_position_embeddings > 0,
            "encoder: vocab_size {}, hidden_size {}, intermediate_size {}, num_attention_heads "
            "{} and max_position_embeddings {} must not be 0",
            config.vocab_size, C, config.intermediate_size, H, config.max_position_embeddings);
    require(C % H == 0 && C / H % 2 == 0,
            "encoder: {} heads do not divide a hidden size of {} into even parts", H, C);
    require(!config.windowed || config.windowed->full_every > 0,
            "encoder: full_every must not be 0");
    return config;
}

void check_batch(const EncoderConfig& config, const BatchEncoding& batch) {
    const auto& ids = batch.input_ids;
    require(ids.size() > 0, "encoder: input ids of {} hold no token", ids.shape());
    for (const IdMatrix* other :
         {&batch.padding_mask, &batch.token_type_ids, &batch.position_ids})
        require(other->shape() == ids.shape(),
                "encoder: input ids of {} do not match a padding mask of {}, token types of {} "
                "and positions of {}",
                ids.shape(), batch.padding_mask.shape(), batch.token_type_ids.shape(),
                batch.position_ids.shape());
    const auto check = [](const IdMatrix& values, std::size_t count, const char* name) {
        for (const Id value : values)
            require(value >= 0 && static_cast<std::size_t>(value) < count,
                    "encoder: there is no {} {} among {}", name, value, count);
    };
    check(ids, config.vocab_size, "token");
    check(batch.token_type_ids, std::max(config.type_vocab_size, std::size_t{1}), "token type");
    check(batch.position_ids, config.max_position_embeddings, "position");
}

BatchEncoding pad(const std::vector<std::vector<Id>>& texts, Id pad_token_id) {
    std::size_t longest = 0;
    for (const std::vector<Id>& text : texts) longest = std::max(longest, text.size());
    require(longest > 0, "pad: {} texts hold no token", texts.size());
    const IdMatrix zeros = xt::zeros<Id>({texts.size(), longest});
    const IdMatrix all_padding = zeros + pad_token_id;
    BatchEncoding batch{all_padding, zeros, zeros, position_ids(texts.size(), longest)};
    for (std::size_t b = 0; b < texts.size(); ++b)
        for (std::size_t t = 0; t < texts[b].size(); ++t) {
            batch.input_ids(b, t) = texts[b][t];
            batch.padding_mask(b, t) = 1;
        }
    return batch;
}

EncoderInputs encoder_inputs(const EncoderConfig& config, const BatchEncoding& batch) {
    check_batch(config, batch);
    // The longest text: without padding, its tokens are a part of the row.
    const std::size_t longest = static_cast<std::size_t>(xt::amax(batch.position_ids)() + 1);
    const IdMatrix padding_mask = batch.cu_seqlens.empty()
                                      ? batch.padding_mask
                                      : IdMatrix(xt::ones<Id>({std::size_t{1}, longest}));
    const auto inputs = [&](std::optional<Real> rope_theta, std::optional<std::size_t> window) {
        return AttentionInputs{rotary_table_of(config, rope_theta, longest), batch.position_ids,
                               bidirectional_mask(padding_mask, window)};
    };
    EncoderInputs result{inputs(config.rope_theta, std::nullopt), std::nullopt,
                         batch.cu_seqlens};
    if (config.windowed)
        result.windowed = inputs(config.windowed->rope_theta, config.windowed->window);
    return result;
}

Tensor3 EncoderEmbeddings::sum(const BatchEncoding& batch) const {
    Tensor3 result = embedding(word_embeddings, batch.input_ids);  // (B, T, C)
    if (position_embeddings)
        result = result + embedding(*position_embeddings, batch.position_ids);
    if (token_type_embeddings)
        result = result + embedding(*token_type_embeddings, batch.token_type_ids);
    return result;
}

Tensor3 EncoderEmbeddings::operator()(const BatchEncoding& batch) const {
    return norm(sum(batch));
}

void embeddings_backward(const EncoderEmbeddings& embeddings, const BatchEncoding& batch,
                         const Tensor3& output_gradient, EncoderEmbeddings& gradient) {
    // A sum passes its gradient to each of its terms.
    const Tensor3 sum_gradient =  // (B, T, C)
        norm_backward(embeddings.norm, embeddings.sum(batch), output_gradient, gradient.norm);
    embedding_backward(batch.input_ids, sum_gradient, gradient.word_embeddings);
    if (embeddings.position_embeddings)
        embedding_backward(batch.position_ids, sum_gradient, *gradient.position_embeddings);
    if (embeddings.token_type_embeddings)
        embedding_backward(batch.token_type_ids, sum_gradient, *gradient.token_type_embeddings);
}

Tensor3 norm_backward(const NormOrIdentity& norm, const Tensor3& input,
                      const Tensor3& output_gradient, NormOrIdentity& gradient) {
    if (!norm.norm) return output_gradient;
    return norm_backward(*norm.norm, input, output_gradient, *gradient.norm);
}

Linear zero_linear(std::size_t in_features, std::size_t out_features, bool has_bias) {
    Linear linear{xt::zeros<Real>({out_features, in_features}), std::nullopt};
    if (has_bias) linear.bias = xt::zeros<Real>({out_features});
    return linear;
}

BertModel empty_bert(const EncoderConfig& given) {
    const EncoderConfig config = validate(given);
    BertModel model{config, embeddings_of(config), {}, {}};
    const std::size_t C = config.hidden_size, F = config.intermediate_size;
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        model.layers.push_back({attention_of(config, n),
                                Mlp{zero_linear(C, F, config.has_bias),
                                    zero_linear(F, C, config.has_bias), config.hidden_act},
                                norm_of(config), norm_of(config)});
    return model;
}

ModernBertModel empty_modern_bert(const EncoderConfig& given) {
    const EncoderConfig config = validate(given);
    ModernBertModel model{config, embeddings_of(config), {}, {norm_of(config)}};
    const std::size_t C = config.hidden_size, F = config.intermediate_size;
    const Linear up = zero_linear(C, F, config.has_bias);
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        // The embeddings are normalized already, so the first layer has no norm before it.
        const NormOrIdentity norm{norm_of(config)};
        model.layers.push_back(
            {attention_of(config, n),
             GatedMlp{up, up, zero_linear(F, C, config.has_bias), config.hidden_act},
             n == 0 ? NormOrIdentity{} : norm, norm});
    }
    return model;
}

Matrix Pooler::operator()(const Tensor3& hidden_states) const {
    const Matrix first_tokens = xt::view(hidden_states, xt::all(), 0, xt::all());  // (B, C)
    const Matrix projected = dense(first_tokens);
    return xt::tanh(projected);  // (B, C)
}

void add_parameters(ParameterList& list, const std::string& name, NormOrIdentity& norm) {
    if (norm.norm) add_parameters(list, name, *norm.norm);
}

void add_parameters(ParameterList& list, const std::string& name,
                    EncoderEmbeddings& embeddings) {
    add_tensor(list, name + ".word_embeddings.weight", embeddings.word_embeddings);
    if (embeddings.position_embeddings)
        add_tensor(list, name + ".position_embeddings.weight", *embeddings.position_embeddings);
    if (embeddings.token_type_embeddings)
        add_tensor(list, name + ".token_type_embeddings.weight",
                   *embeddings.token_type_embeddings);
    add_parameters(list, name + ".norm", embeddings.norm);
}

template struct PostNormBlockWith<LayerNorm, Mlp, EncoderAttention>;
template struct PreNormBlockWith<NormOrIdentity, GatedMlp, EncoderAttention>;
template struct Encoder<BertBlock>;
template struct Encoder<ModernBertBlock>;

}  // namespace llm
