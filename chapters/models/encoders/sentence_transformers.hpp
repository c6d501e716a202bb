// What a folder of sentence-transformers, or a GGUF file, says about the vector of a text.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "chapters/25_encoders/text_embedding.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// From the vectors of tokens to that of a text. A model without these files has the mean, as
// sentence-transformers takes it.
struct SentenceTransformer {
    Pooling pooling = Pooling::mean;
    bool normalize = false;         // the vector has length 1
    bool has_dot_products = false;  // texts are compared by these, not by cosines
    std::map<std::string, std::string> prompts = {};  // what a text of a kind begins with
    std::string default_prompt_name = "";             // empty: none
    bool include_prompt = true;                       // in the mean
    bool do_lower_case = false;                       // of the text
    std::optional<std::size_t> max_seq_length = std::nullopt;  // tokens
};

// Reads modules.json, config_sentence_transformers.json, sentence_bert_config.json and
// 1_Pooling/config.json of a folder, of which any may be missing; or the pooling of a GGUF
// file. Throws FileError for another module or pooling. Source: sentence-transformers 5.
SentenceTransformer read_sentence_transformer(const std::string& path);

// A text as the encoder reads it: with the prompt of this name (empty: the default one), in
// lower case if the model wants that. Throws ValueError, which lists the names, if there is
// none, or if the prompt is not a part of the mean.
std::string with_prompt(const SentenceTransformer& model, const std::string& prompt_name,
                        const std::string& text);

// The kind of 1_Pooling/config.json: none for another one, or for several. Throws FileError.
std::optional<Pooling> read_pooling_mode(const JsonFile& json);

}  // namespace llm::models
