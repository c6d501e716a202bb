// A file's bytes, mapped into memory: nothing is read before it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <span>
#include <stdexcept>

namespace llm {

// A file that is missing, unreadable, or not what it should be. One line, which names the file;
// what the file itself says may stand in it, so control characters become ? and long texts end
// in dots.
struct FileError : std::runtime_error {
    explicit FileError(const std::string& message);
};

class MappedFile {
 public:
    explicit MappedFile(const std::filesystem::path& file);  // throws FileError
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::span<const std::byte> bytes() const { return {data_, size_}; }

    // Lets the system take back the memory behind these bytes. They can be read again.
    void forget(std::span<const std::byte> part) const;

 private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// A file or folder of assets/, in the tree that this program was built from.
std::string asset(const std::string& name);

// Where a trained model goes unless told otherwise: build/models/NAME.
std::string model_folder(const std::string& name);

bool is_folder(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
void make_folder(const std::filesystem::path& folder);  // throws FileError

// Writes under another name first and renames, so that nobody ever finds half a file. Throws
// FileError.
void write_file(const std::filesystem::path& file,
                const std::function<void(std::ostream&)>& write);

}  // namespace llm
