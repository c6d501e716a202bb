// What the tokenizers of T5, ALBERT and XLM-R have in a tokenizer.json: Unigram, and a decoder.
// Functions that read throw FileError.
#pragma once

#include "chapters/26_encoder_decoder/unigram.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// Is the model Unigram? Old files have no type; only this model's vocabulary is a list.
bool is_unigram(const JsonFile& model);
bool is_unigram(const Tokenizer& tokenizer);

// The tokens and their scores, by id.
std::vector<std::pair<std::string, double>> read_scored_tokens(const JsonFile& model);

// Unigram with the other components of the file that it was read from, to write them again.
struct UnigramOfFile : Unigram {
    Json normalizer, pre_tokenizer, post_processor, decoder;
    std::vector<std::string> components;  // what they must still be when they are written
};
// Makes the tokenizer's Unigram one that can be written again.
void keep_components(const JsonFile& file, Tokenizer& tokenizer);

// Sets what each token is in a decoded text: the replacement, usually ▁, becomes a space, and,
// unless the prepend scheme is "never", nothing in the first token.
void read_metaspace_decoder(const JsonFile& json, Tokenizer& tokenizer);

// All components of a tokenizer with Unigram, and its vocabulary. Throws ValueError if it was
// neither read from a file nor trained by train_unigram, or has been changed since.
JsonMembers unigram_components(const Tokenizer& tokenizer,
                               const std::vector<std::string>& tokens);  // by id

// Reads the scheme of a Metaspace, in old files add_prefix_space.
PrependScheme read_prepend_scheme(const JsonFile& json);

}  // namespace llm::models
