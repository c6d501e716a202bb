#include "chapters/apps/runs/run_folder.hpp"

#include "common/files/mapped_file.hpp"

namespace llm::runs {

bool RunFolder::has_checkpoint() const { return is_file(checkpoint_file()); }

void lock_run_folder(RunFolder& folder) {
    if (folder.resume && !folder.has_checkpoint())
        throw FileError(folder.path + " holds no checkpoint to resume from");
    folder.lock = std::make_shared<FolderLock>(folder.path);
}

void reject_checkpoint(const RunFolder& folder, const std::string& steps) {
    throw FileError(folder.path + " holds a checkpoint: --resume continues its run" +
                    (steps.empty() ? "" : " (" + steps + " steps are done)") +
                    ", and --folder names another folder for a new run");
}

}  // namespace llm::runs
