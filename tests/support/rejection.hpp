// For tests of checkpoints that cannot be loaded.
#pragma once

#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"

namespace llm {

// The error message: one line that names the path.
inline std::string rejection(const std::string& path) try {
    models::load_model(path);
    return "it was loaded";
} catch (const FileError& error) {
    const std::string line = error.what();
    CHECK(line.find(path) != line.npos);
    CHECK(line.find('\n') == line.npos);
    CHECK(line.size() < 610);
    return line;
}

}  // namespace llm
