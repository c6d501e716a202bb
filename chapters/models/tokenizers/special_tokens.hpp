// The tokenizer of a model, with the tokens at which generation starts and stops.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm::models {

// Adds to eos_token_ids every EOS token that a file in the folder names: eos_token_id in
// config.json and generation_config.json, eos_token in tokenizer_config.json. Sets bos_token_id
// from the same files if the tokenizer has none. No other setting is read: temperature, top_k,
// top_p and do_sample of generation_config.json have no effect. Throws FileError.
void read_special_tokens(const std::string& folder, Tokenizer& tokenizer);

// Loads the tokenizer of a model; an empty tokenizer_path is the file beside the model, or a
// GGUF file itself. Reads the special tokens in the folder of the model and in that of a
// tokenizer.json. Throws FileError, also if the tokenizer adds tokens after a text, as BERT's
// [SEP]: this is for models that continue a text.
Tokenizer load_tokenizer_of_model(const std::string& model_path,
                                  const std::string& tokenizer_path, std::size_t vocab_size);

// The ids of a prompt. Those of an empty prompt are the BOS token; throws ValueError if the
// tokenizer has none.
std::vector<Id> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt);

}  // namespace llm::models
