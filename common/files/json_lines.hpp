// JSON Lines: a file with one JSON object a line.
#pragma once

#include "common/files/json_file.hpp"

namespace llm {

// The object of each line that is not empty. Messages name the line. Throws FileError.
std::vector<JsonFile> read_json_lines(const std::string& file);

}  // namespace llm
