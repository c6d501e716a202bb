// What BERT's tokenizers have in a tokenizer.json: WordPiece, its normalizer and decoder, and
// the template of a pair of texts. Functions that read throw FileError.
#pragma once

#include "chapters/25_encoders/wordpiece.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// Is the model WordPiece? Old files have no type; they are known by a setting that only
// WordPiece has.
bool is_wordpiece(const JsonFile& model);

WordPiece read_wordpiece(const JsonFile& model);
Normalizer read_bert_normalizer(const JsonFile& json);

// Replaces each token of the tokenizer by its text within a decoded text.
void read_wordpiece_decoder(const JsonFile& json, Tokenizer& tokenizer);

// The special tokens before and after a text of a post-processor of older files.
void read_bert_processing(const JsonFile& json, Tokenizer& tokenizer);

// Rejects the template of a pair unless it is what encode_pair does: the template of one text,
// then the second text and the tokens after it, of type 1.
void check_pair_template(const JsonFile& post_processor);

// The post-processor: the tokens before a text, the text, and the tokens after it.
JsonMembers template_members(const Tokenizer& tokenizer,
                             const std::vector<std::string>& tokens);  // by id

// All components of a tokenizer with WordPiece, without its vocabulary and added tokens. Throws
// ValueError for a word model, a normalizer or a pre-tokenizer that is not BERT's.
JsonMembers wordpiece_components(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& tokens);  // by id

}  // namespace llm::models
