// For tests that read and write files: temporary folders, and files to edit.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "tests/support/check.hpp"

namespace llm {

namespace fs = std::filesystem;

// A temporary folder, which is removed at the end of the test.
struct Scratch {
    fs::path folder = fs::temp_directory_path() /
                      ("llm_test_" + std::to_string(getpid()) + "_" + std::to_string(next++));
    static inline int next = 0;

    Scratch() { fs::create_directories(folder); }
    ~Scratch() { fs::remove_all(folder); }

    // Copies a folder of the fixtures, so that its files can be edited.
    std::string copy_of(const std::string& name) const {
        const fs::path copy = folder / fs::path(name).filename();
        fs::copy(fixture_path(name), copy, fs::copy_options::recursive);
        return copy.string();
    }
};

inline std::string content(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

inline void overwrite(const fs::path& file, const std::string& text) {
    fs::permissions(file.parent_path(), fs::perms::owner_all, fs::perm_options::add);
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << text;
}

inline void edit(const fs::path& file, const std::string& old_text,
                 const std::string& new_text) {
    std::string text = content(file);
    const auto at = text.find(old_text);
    REQUIRE_MESSAGE(at != text.npos, old_text);
    overwrite(file, text.replace(at, old_text.size(), new_text));
}

inline bool mentions(const std::string& text, const std::string& part) {
    INFO(text);
    const bool found = text.find(part) != text.npos;
    CHECK_MESSAGE(found, part);
    return found;
}

// The path of karpathy's stories260K.bin: the environment variable STORIES260K, or else the top
// folder of the tree. Empty if there is no such file.
inline std::string stories260k() {
    const char* const named = std::getenv("STORIES260K");
    const std::string file = named ? named : fixture_path("../../stories260K.bin");
    return fs::exists(file) ? file : "";
}

}  // namespace llm
