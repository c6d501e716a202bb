// Published models with an encoder and a decoder: T5, its settings and its files.
#pragma once

#include <string>

#include "chapters/11_generation/generation.hpp"
#include "chapters/26_encoder_decoder/encoder_decoder.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"

namespace llm::models {

// The settings of a T5. Source: transformers 4.57, configuration_t5.py.
struct T5FamilyConfig {
    std::string architecture = "T5ForConditionalGeneration";  // Hugging Face's class
    Config sizes;  // L: layers of the encoder; D: d_kv; max_position_embeddings: no limit
    std::size_t num_decoder_layers = 0;
    bool has_decoder = true;            // T5EncoderModel has none
    bool has_lm_head = true;            // T5Model has none
    bool scale_decoder_outputs = true;  // else: the logits are not scaled by 1/√C
    std::size_t relative_attention_num_buckets = 32, relative_attention_max_distance = 128;
    Activation activation = ReLU;
    bool is_gated_act = false;
    Id pad_token_id = 0, decoder_start_token_id = 0;
    std::vector<Id> eos_token_ids = {1};

    bool has_own_head() const { return has_lm_head && !sizes.tie_word_embeddings; }
};

struct T5FamilyModel {
    T5FamilyConfig config;
    T5Model model;
};

// Whether this is the config.json, or the GGUF file, of a T5. Throws FileError.
bool is_t5(const JsonFile& json);
bool is_t5(const Gguf& file);

// Throws FileError, which names the field, as read_encoder_config does. Missing fields have the
// defaults of transformers 4.57.
T5FamilyConfig read_t5_config(const JsonFile& json);
JsonMembers config_json(const T5FamilyConfig& config, DType dtype);

// A model with the structure of this configuration, whose tensors are still empty.
T5Model make_empty_t5(const T5FamilyConfig& config);

// Loads config.json and model.safetensors of a folder; writes them, in float32 or bfloat16.
// Throw FileError, which names the file and the tensor.
T5FamilyModel load_t5(const std::string& folder);
void export_model(const T5FamilyModel& t5, const std::string& folder,
                  DType dtype = DType::float32);

// The parameters by part; tables of biases count with attention.
EncoderParameters count_parameters(const T5FamilyModel& t5);

// The outputs under Hugging Face's names. Those of padding have no meaning.
struct T5Outputs {
    std::optional<Tensor3> encoder_last_hidden_state;  // (B, S, C), if there is a decoder
    Tensor3 last_hidden_state;                         // (B, T, C) of the decoder, or (B, S, C)
    std::optional<Tensor3> logits;                     // (B, T, V)
};
// A model without a decoder ignores the decoder's tokens. Throws ValueError for an id that is
// not in the vocabulary.
T5Outputs run_texts(const T5FamilyModel& t5, const BatchEncoding& batch,
                    const IdMatrix& decoder_input_ids);

// The tokens that the decoder writes for the text of one sequence, without the start token.
// Throws ValueError as run_texts does.
GeneratedTokens generate(const T5FamilyModel& t5, const std::vector<Id>& text,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {});

}  // namespace llm::models
