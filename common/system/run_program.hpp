// What surrounds a program: its folders, a limit of its memory, its steps and figures. Only
// options.cpp includes it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/output/terminal.hpp"

namespace llm {

// Creates the folders that the options name, and removes them if the run ends with an error.
class Folders {
 public:
    bool creates = true;  // otherwise, prepare does nothing

    // Throws UsageError unless files can be written there.
    void prepare(const std::string& option, const std::filesystem::path& folder);
    void remove_created() const;  // if they are empty

 private:
    std::vector<std::filesystem::path> created_;
};

// Runs the program, with --only until the end of the step that is printed, and draws the
// figures. Throws UsageError if --only has no such step, std::runtime_error if the program was
// compiled for another processor.
void run_and_report(const std::function<void()>& program, const PrintOptions& printing);

}  // namespace llm
