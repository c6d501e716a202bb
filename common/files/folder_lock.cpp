#include "common/files/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "common/files/mapped_file.hpp"

namespace llm {

FolderLock::FolderLock(const std::filesystem::path& folder) {
    make_folder(folder);
    descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some network file systems have no locks: a run without one is better than none.
    if (descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        close(descriptor_);
        throw FileError(folder.string() + ": another run is writing to this folder");
    }
}

FolderLock::~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace llm
