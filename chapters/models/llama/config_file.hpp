// Opening a config.json, and what it says besides the settings of the layers: the text model
// inside, the head, how the weights are stored.
#pragma once

#include "common/files/json_file.hpp"
#include "common/files/safetensors.hpp"

namespace llm::models {

// The settings of the language model in this file. Of a model that reads pictures or sound,
// too, these are the members of text_config (or llm_config, language_config), with the
// model_type of the text model and what the whole file says of weights and classes. Settings
// of --ignore are left out. Throws FileError.
JsonFile open_config(const std::filesystem::path& file);

// The head of the class in "architectures". Source: Hugging Face, modeling_auto.py and
// modeling_layers.py.
struct HeadOfClass {
    std::string class_name = "";
    bool is_language_model = true;  // logits of the vocabulary; false: another head, or none
    std::uint64_t num_outputs = 0;  // of another head: score.weight or qa_outputs.weight
    bool has_bias = false;          // of that head
};
HeadOfClass read_head(const JsonFile& json);

// How the weights are stored, if they are quantized: "gptq", "fp8"; empty if they are not.
std::string quantization_method(const JsonFile& json);

// For readers of weights. Throw FileError if the class has no language-model head and the
// embedding is not tied to one; if the weights are quantized by another method than fp8.
void reject_other_head(const JsonFile& json, bool tie_word_embeddings);
void reject_quantized_weights(const JsonFile& json);

// Gives the tensors of the text model the names of Hugging Face's ...ForCausalLM, which begin
// with that of the embedding: files have others for a model without a head (no "model.") and
// for one inside another (language_model.model., model.language_model.). Tensors of other
// parts, if there are any, are noted and not read; nor are scales with which activations would
// be rounded to FP8. FP8 weights get the weight_block_size of quantization_config.
void name_as_causal_lm(const JsonFile& json, const std::string& embed_tokens,
                       const std::string& lm_head, SafeTensors& tensors);

}  // namespace llm::models
