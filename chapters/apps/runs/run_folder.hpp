// The folder of a run: its checkpoint and its result.
#pragma once

#include <memory>
#include <string>

#include "common/files/folder_lock.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::runs {

struct RunFolder {
    std::string path;
    bool resume = false;                    // continue the run of the checkpoint
    std::size_t save_steps = 0;             // steps between checkpoints, 0: about a minute
    DType dtype = DType::float32;           // of the saved model
    std::shared_ptr<FolderLock> lock = {};  // held until the program ends

    std::string checkpoint_file() const { return path + "/run.safetensors"; }
    bool has_checkpoint() const;
};

// Creates and locks the folder. Throws FileError if there is no checkpoint to resume from, or
// if another run is writing to the folder.
void lock_run_folder(RunFolder& folder);

// Throws FileError: a new run would overwrite the checkpoint, of which so many steps are done.
[[noreturn]] void reject_checkpoint(const RunFolder& folder, const std::string& steps = "");

}  // namespace llm::runs
