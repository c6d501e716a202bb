// For tests of checkpoints that cannot be loaded.
#pragma once

#include "chapters/09_full_model/checkpoint.hpp"
#include "tests/check.hpp"

namespace llm {

// The error message: one line that names the path.
inline std::string rejection(const std::string& path) try {
    load_model(path);
    return "it was loaded";
} catch (const FileError& error) {
    const std::string line = error.what();
    CHECK(line.find(path) != line.npos);
    CHECK(line.find('\n') == line.npos);
    CHECK(line.size() < 500);
    return line;
}

}  // namespace llm
