// Published encoders: a family reads config.json into the settings of chapter 25's encoder; its
// names say where the tensors stand.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chapters/25_encoders/encoder.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/models/family.hpp"

namespace llm::models {

struct EncoderFamily;

// The names of labels in id2label, by number; that of label n, which is Hugging Face's LABEL_n
// if the file has none; and the value of id2label for all of them. read_labels throws
// FileError.
std::map<std::string, std::string> read_labels(const JsonFile& json);
std::string label_of(const std::map<std::string, std::string>& id2label, std::size_t n);
JsonObject labels_json(const std::map<std::string, std::string>& id2label,
                       std::size_t num_labels);

// What a model computes besides the vectors of its tokens.
struct EncoderHeads {
    bool pooler = false;         // pooler_output, of the first token
    bool masked_lm = false;      // logits of masked tokens
    bool next_sentence = false;  // two logits: does the second text follow the first?
    bool classifier = false;     // logits of labels

    bool operator==(const EncoderHeads&) const = default;
};

// What the labels of a classifier are: exclusive classes, or not, or one number.
enum class ProblemType { single_label, multi_label, regression };

// The settings of a published encoder. (has_bias and windowed of chapter 25 are those of all
// layers; here each kind of layer has a setting of its own.)
struct EncoderFamilyConfig : EncoderConfig {
    const EncoderFamily* family = nullptr;
    std::string architecture;  // Hugging Face's class
    EncoderHeads heads;
    std::vector<bool> windows;  // L: whether layer n sees a window
    bool norm_bias = true, attention_bias = true, mlp_bias = true;
    bool head_bias = true, decoder_bias = true;  // of the head for masked tokens
    Activation head_activation = GELU;
    bool tie_word_embeddings = true;
    // What the classifier reads: a vector of this kind, through the first part of the head for
    // masked tokens (ModernBERT); none: the output of the pooler (BERT).
    std::optional<Pooling> classifier_pooling = std::nullopt;
    std::size_t num_labels = 0;                        // of the classifier
    std::map<std::string, std::string> id2label = {};  // their names, by number
    ProblemType problem_type = ProblemType::single_label;
    Id pad_token_id = 0;

    std::string label(std::size_t n) const { return label_of(id2label, n); }
    // Whether there is a linear layer, an activation and a norm before the decoder.
    bool has_head_features() const {
        return heads.masked_lm || (heads.classifier && classifier_pooling);
    }
};

// The names of tensors, without ".weight" and ".bias". An empty name means that the family has
// no such tensor.
struct EncoderNames {
    std::string prefix;  // in safetensors, of the encoder in a model with a head: "bert."
    std::string word_embeddings, position_embeddings, token_type_embeddings, embeddings_norm;
    std::string layer;  // followed by the number of the layer
    // Of ModernBERT, q, k and v are one matrix, and so are gate and up.
    FamilyLayerNames layers;
    std::string final_norm, pooler, head_dense, head_norm, decoder, decoder_bias,
        seq_relationship, classifier;
};

// A family: its classes, its names, and how settings are read.
struct EncoderFamily {
    std::string model_type;                       // config.json's
    std::map<std::string, EncoderHeads> classes;  // Hugging Face's, with their heads
    std::string base_class;                       // without a head
    EncoderNames names;                           // in safetensors
    std::string gguf_architecture;                // llama.cpp's
    EncoderNames gguf_names;                      // it has no heads
    // The family's names of common keys in config.json; empty: its files lack the key.
    std::map<std::string, std::string> attribute_map;
    ClassDefaults defaults;
    Id default_pad_token_id = 0;

    // Reads the keys of this family alone; the common ones have been read. Throws FileError.
    void (*read)(const JsonFile& json, EncoderFamilyConfig& config);
    // Appends these keys.
    void (*write)(const EncoderFamilyConfig& config, JsonMembers& members);
    // The same for GGUF files: appends the settings, and throws ValueError if llama.cpp would
    // compute something else; reads them, and throws FileError.
    void (*add_gguf)(const EncoderFamilyConfig& config, GgufMetadata& metadata);
    void (*read_gguf)(const GgufSettings& gguf, EncoderFamilyConfig& config);
};

const EncoderFamily& bert_family();
const EncoderFamily& modernbert_family();
const std::vector<const EncoderFamily*>& encoder_families();

// The family with the model_type of this config.json, or, if it has none, with its class; null
// if it is no encoder.
const EncoderFamily* find_encoder_family(const JsonFile& json);
// The same for a GGUF file, by its architecture.
const EncoderFamily* find_encoder_family(const Gguf& file);
// The same for a folder or a GGUF file; null also if there is neither. Throws FileError.
const EncoderFamily* find_encoder_family(const std::string& path);

// The heads are those of the class. Throws FileError, which names the field, if one
// contradicts another or requires an unsupported feature, or if the file is of no encoder.
// Missing fields have the defaults of transformers 4.57.
EncoderFamilyConfig read_encoder_config(const JsonFile& json);

// The sizes, and the ε of the norms, as chapter 09's functions take them; and the other way.
Config sizes_of(const EncoderFamilyConfig& config);
EncoderFamilyConfig config_with(const EncoderFamily& family, const Config& sizes);

// The members of config.json for a configuration.
JsonMembers config_json(const EncoderFamilyConfig& config, DType dtype);

}  // namespace llm::models
