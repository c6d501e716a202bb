// BERT: post-norm blocks, learned positions, token types, biases everywhere. Source: Hugging
// Face, modeling_bert.py; Devlin et al., 2018.
#include <algorithm>

#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"

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

// Its graph has GELU with tanh, and adds the row of token type 0 to each token.
void add_bert_gguf(const EncoderFamilyConfig& config, GgufMetadata& metadata) {
    require(config.hidden_act.function == gelu || config.hidden_act.function == gelu_tanh,
            "export: llama.cpp's bert has GELU, not {}", config.hidden_act.name);
    metadata.emplace_back("tokenizer.ggml.token_type_count",
                          std::int64_t(std::max(config.type_vocab_size, std::size_t{1})));
}

void read_bert_gguf(const GgufSettings& gguf, EncoderFamilyConfig& config) {
    const std::string types = config.family->gguf_names.token_type_embeddings + ".weight";
    if (gguf.file.has_tensor(types)) config.type_vocab_size = gguf.file.tensor(types).shape[0];
}

EncoderNames bert_gguf_names() {
    EncoderNames names;
    names.word_embeddings = "token_embd";
    names.position_embeddings = "position_embd";
    names.token_type_embeddings = "token_types";
    names.embeddings_norm = "token_embd_norm";
    names.layer = gguf_names.layer;
    names.layers = gguf_layer_names();
    names.layers.attention_norm = "attn_output_norm";
    names.layers.ffn_norm = "layer_output_norm";
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
        .gguf_architecture = "bert",
        .gguf_names = bert_gguf_names(),
        .attribute_map = {{"num_key_value_heads", ""},
                          {"head_dim", ""},
                          {"rope_theta", ""},
                          {"rms_norm_eps", "layer_norm_eps"}},
        .defaults = {30522, 768, 3072, 12, 12, 0, 512, 0, 1e-12, 0, true},
        .read = read_bert,
        .write = write_bert,
        .add_gguf = add_bert_gguf,
        .read_gguf = read_bert_gguf};
    return family;
}

}  // namespace llm::models
