// BERT: post-norm blocks, learned positions, token types, biases everywhere. Source: Hugging
// Face, modeling_bert.py; Devlin et al., 2018.
#include "chapters/models/encoders/encoder_family.hpp"

namespace llm::models {
namespace {

void read_bert(const JsonFile& json, EncoderFamilyConfig& config) {
    config.type_vocab_size = json.size_or("type_vocab_size", 2);
    config.head_activation = config.hidden_act;
    const std::string positions = "position_embedding_type";
    if (json.has(positions) && json.text(positions) != "absolute")
        json.reject_value(positions, json.text(positions), "absolute");
    for (const char* key : {"is_decoder", "add_cross_attention"})
        if (json.boolean_or(key, false)) json.reject_value(key, "true", "false");
    // Keys of Google's files, which transformers does not read.
    for (const char* key : {"directionality", "pooler_fc_size", "pooler_num_attention_heads",
                            "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"})
        json.ignore(key);
}

void write_bert(const EncoderFamilyConfig& config, JsonMembers& members) {
    members.push_back({"type_vocab_size", config.type_vocab_size});
    members.push_back({"position_embedding_type", "absolute"});
}

EncoderNames bert_names() {
    EncoderNames names;
    names.prefix = "bert.";
    names.word_embeddings = "bert.embeddings.word_embeddings";
    names.position_embeddings = "bert.embeddings.position_embeddings";
    names.token_type_embeddings = "bert.embeddings.token_type_embeddings";
    names.embeddings_norm = "bert.embeddings.LayerNorm";
    names.layer = "bert.encoder.layer.";
    names.layers.q_proj = "attention.self.query";
    names.layers.k_proj = "attention.self.key";
    names.layers.v_proj = "attention.self.value";
    names.layers.o_proj = "attention.output.dense";
    names.layers.attention_norm = "attention.output.LayerNorm";
    names.layers.mlp = {"", "intermediate.dense", "output.dense"};
    names.layers.ffn_norm = "output.LayerNorm";
    names.pooler = "bert.pooler.dense";
    names.head_dense = "cls.predictions.transform.dense";
    names.head_norm = "cls.predictions.transform.LayerNorm";
    names.decoder = "cls.predictions.decoder";
    names.decoder_bias = "cls.predictions";
    names.seq_relationship = "cls.seq_relationship";
    names.classifier = "classifier";
    return names;
}

}  // namespace

const EncoderFamily& bert_family() {
    static const EncoderFamily family = {
        .model_type = "bert",
        .classes = {{"BertModel", {}},
                    {"BertForMaskedLM", {.masked_lm = true}},
                    {"BertForPreTraining",
                     {.pooler = true, .masked_lm = true, .next_sentence = true}},
                    {"BertForNextSentencePrediction", {.pooler = true, .next_sentence = true}},
                    {"BertForSequenceClassification", {.pooler = true, .classifier = true}}},
        .base_class = "BertModel",
        .names = bert_names(),
        .attribute_map = {{"num_key_value_heads", ""},
                          {"head_dim", ""},
                          {"rope_theta", ""},
                          {"rms_norm_eps", "layer_norm_eps"}},
        .defaults = {30522, 768, 3072, 12, 12, 0, 512, 0, 1e-12, 0, true},
        .read = read_bert,
        .write = write_bert};
    return family;
}

}  // namespace llm::models
