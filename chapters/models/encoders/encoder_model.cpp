#include "chapters/models/encoders/encoder_model.hpp"

namespace llm::models {
namespace {

LayerNorm empty_norm(const EncoderFamilyConfig& config) {
    LayerNorm norm{{}, std::nullopt, config.layer_norm_eps};
    if (config.norm_bias) norm.bias = Vector{};
    return norm;
}

EncoderAttention empty_attention(const EncoderFamilyConfig& config, std::size_t layer) {
    const std::size_t H = config.num_attention_heads;
    const Linear projection = empty_linear(config.attention_bias);
    return {AttentionLayer{H, H, {projection, projection, projection, projection}},
            config.windows[layer]};
}

// Layer n of each block type.
void add_layer(const EncoderFamilyConfig& config, std::vector<BertBlock>& layers) {
    const Linear linear = empty_linear(config.mlp_bias);
    layers.push_back({empty_attention(config, layers.size()),
                      Mlp{linear, linear, config.hidden_act}, empty_norm(config),
                      empty_norm(config)});
}
void add_layer(const EncoderFamilyConfig& config, std::vector<ModernBertBlock>& layers) {
    const Linear linear = empty_linear(config.mlp_bias);
    const NormOrIdentity norm{empty_norm(config)};
    layers.push_back({empty_attention(config, layers.size()),
                      GatedMlp{linear, linear, linear, config.hidden_act},
                      layers.empty() ? NormOrIdentity{} : norm, norm});
}

EncoderEmbeddings empty_embeddings(const EncoderFamilyConfig& config) {
    EncoderEmbeddings embeddings{{}, std::nullopt, std::nullopt, empty_norm(config)};
    if (!config.rope_theta) embeddings.position_embeddings = Matrix{};
    if (config.type_vocab_size > 0) embeddings.token_type_embeddings = Matrix{};
    return embeddings;
}

template <class Block>
EncoderFamilyModel<Block> make_empty(const EncoderFamilyConfig& config,
                                     const NormOrIdentity& final_norm) {
    EncoderFamilyModel<Block> model{
        config,       {config, empty_embeddings(config), {}, final_norm},
        std::nullopt, std::nullopt,
        std::nullopt, std::nullopt};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        add_layer(config, model.encoder.layers);
    if (config.heads.pooler) model.pooler = Pooler{empty_linear(true)};
    if (config.has_head_features())
        model.head = MaskedLMHead{empty_linear(config.head_bias), empty_norm(config),
                                  config.head_activation,
                                  empty_linear(config.heads.masked_lm && config.decoder_bias)};
    if (config.heads.next_sentence) model.seq_relationship = empty_linear(true);
    if (config.heads.classifier) model.classifier = empty_linear(true);
    return model;
}

// The vectors that the classifier reads.
template <class Block>
Matrix classified_rows(const EncoderFamilyModel<Block>& model, const EncoderOutputs& outputs,
                       const IdMatrix& padding_mask) {
    if (!model.config.classifier_pooling) return *outputs.pooler_output;
    return head_features(*model.head, pool(*model.config.classifier_pooling,
                                           outputs.last_hidden_state, padding_mask))
        .features;
}

}  // namespace

// BERT's positions are learned, ModernBERT's are RoPE.
AnyEncoder make_empty_encoder(const EncoderFamilyConfig& config) {
    if (!config.rope_theta) return make_empty<BertBlock>(config, {});
    return make_empty<ModernBertBlock>(config, {empty_norm(config)});
}

EncoderOutputs encode(const AnyEncoder& encoder, const BatchEncoding& batch) {
    return std::visit(
        [&](const auto& model) {
            EncoderOutputs outputs{model.encoder(batch), std::nullopt, std::nullopt,
                                   std::nullopt, std::nullopt};
            const EncoderHeads& heads = model.config.heads;
            if (heads.pooler)
                outputs.pooler_output = (*model.pooler)(outputs.last_hidden_state);
            if (heads.masked_lm)
                outputs.mlm_logits =
                    masked_lm_logits(*model.head, model.encoder.embeddings.word_embeddings,
                                     outputs.last_hidden_state);
            if (heads.next_sentence)
                outputs.nsp_logits = (*model.seq_relationship)(*outputs.pooler_output);
            if (heads.classifier)
                outputs.logits =
                    (*model.classifier)(classified_rows(model, outputs, batch.padding_mask));
            return outputs;
        },
        encoder);
}

}  // namespace llm::models
