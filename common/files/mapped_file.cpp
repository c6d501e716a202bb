#include "common/files/mapped_file.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace llm {

std::string one_line(std::string text) {
    for (char& c : text) {
        const auto byte = static_cast<unsigned char>(c);  // on Arm, char has no sign
        if (byte < ' ' || byte == 0x7F) c = '?';
    }
    return text;
}

std::string one_short_line(std::string text) {
    text = one_line(std::move(text));
    if (text.size() <= 600) return text;
    text.resize(600);
    return text += " ...";
}

FileError::FileError(const std::string& message)
    : std::runtime_error(one_short_line(message)) {}

MappedFile::MappedFile(const std::filesystem::path& file) : path_(file) {
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) throw FileError(fmt::format("cannot read {}", file.string()));
    struct stat status {};
    const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    void* data = MAP_FAILED;
    if (regular && status.st_size > 0) {
        size_ = static_cast<std::size_t>(status.st_size);
        data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    close(descriptor);
    if (!regular) throw FileError(fmt::format("{} is not a file", file.string()));
    if (size_ == 0) throw FileError(fmt::format("{} is empty", file.string()));
    if (data == MAP_FAILED) throw FileError(fmt::format("cannot map {}", file.string()));
    data_ = static_cast<const std::byte*>(data);
    const std::string_view text(static_cast<const char*>(data), size_);
    if (!text.starts_with("version https://git-lfs.github.com/spec/")) return;
    munmap(data, size_);
    throw FileError(
        fmt::format("{} is a Git LFS pointer, not the file itself: git lfs pull downloads it",
                    file.string()));
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

void MappedFile::forget(std::span<const std::byte> part) const {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto begin = static_cast<std::size_t>(part.data() - data_) / page * page;
    const auto end = static_cast<std::size_t>(part.data() - data_) + part.size();
    madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

bool is_folder(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
}

bool is_file(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

void make_folder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!is_folder(folder))
        throw FileError(fmt::format("cannot create {}: {}", folder.string(), error.message()));
}

std::string asset(const std::string& name) { return LLM_ASSETS_FOLDER "/" + name; }

std::string model_folder(const std::string& name) { return LLM_MODELS_FOLDER "/" + name; }

std::vector<std::string> files_in(const std::filesystem::path& folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.is_regular_file() && !entry.path().filename().string().starts_with("."))
            files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
}

namespace {

// The error is the system's (errno), 0 if it gave none.
[[noreturn]] void fail_to_write(const std::filesystem::path& file, int error) {
    const std::string reason = error == 0 ? "" : ": " + std::generic_category().message(error);
    throw FileError(fmt::format("cannot write {}{}", file.string(), reason));
}

}  // namespace

void write_file(const std::filesystem::path& file,
                const std::function<void(std::ostream&)>& write) {
    const std::filesystem::path unfinished = file.string() + ".part";
    errno = 0;
    std::ofstream stream(unfinished, std::ios::binary);
    if (stream) write(stream);
    stream.close();
    const int error = errno;
    std::error_code failed;
    if (stream) std::filesystem::rename(unfinished, file, failed);
    if (stream && !failed) return;
    remove_file(unfinished);
    fail_to_write(file, stream ? failed.value() : error);
}

void remove_file(const std::filesystem::path& file) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
}

void check_writable(const std::filesystem::path& file) {
    const std::filesystem::path unfinished = file.string() + ".part";
    errno = 0;
    const bool is_open = std::ofstream(unfinished, std::ios::binary).is_open();
    const int error = errno;
    remove_file(unfinished);
    if (!is_open) fail_to_write(file, error);
}

void write_text_file(const std::filesystem::path& file, const std::string& text) {
    write_file(file, [&](std::ostream& stream) { stream << text; });
}

void append_to_file(const std::filesystem::path& file, const std::string& text) {
    errno = 0;
    std::ofstream stream(file, std::ios::binary | std::ios::app);
    stream << text << std::flush;
    if (!stream) fail_to_write(file, errno);
}

std::vector<std::string> complete_lines(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line) && !stream.eof();) lines.push_back(line);
    return lines;
}

}  // namespace llm
