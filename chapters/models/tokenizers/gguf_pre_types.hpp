// The names of pre-tokenizers in GGUF files.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/pre_tokenizer.hpp"

namespace llm::models {

// What a name in tokenizer.ggml.pre stands for.
struct PreType {
    std::vector<std::string> names;  // the first is the one that llama.cpp's converter writes
    std::vector<std::string> patterns;  // each one splits the words of the previous one
    bool nfc = false;
    bool ignore_merges = false;
    bool add_bos = false;  // if tokenizer.ggml.add_bos_token is missing

    std::vector<PreTokenizer> pre_tokenizers() const;
};

// All that are supported.
const std::vector<PreType>& pre_types();
std::string names_of_pre_types();  // "gpt-2, llama-bpe, ..."

}  // namespace llm::models
