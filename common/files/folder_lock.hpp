// A folder that one running program at a time may write to.
#pragma once

#include <filesystem>

namespace llm {

// Locks a folder with flock. The system unlocks it when the program ends, also after a kill.
class FolderLock {
 public:
    // Creates the folder if there is none. Throws FileError if another run has locked it.
    explicit FolderLock(const std::filesystem::path& folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

 private:
    int descriptor_;
};

}  // namespace llm
