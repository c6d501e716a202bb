// The normalizers of a tokenizer.json.
#pragma once

#include <string>

#include "chapters/10_tokenizer/pre_tokenizer.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {

// Reads one normalizer, which is no Sequence. Throws FileError for types and settings that are
// not supported.
Normalizer read_normalizer(const JsonFile& json);

// The pattern of a Split or Replace, which must be of this kind: "String" or "Regex". Throws
// FileError.
std::string read_pattern(const JsonFile& json, const std::string& kind);

}  // namespace llm::models
