// Memory-mapped files, which the system reads page by page on first access, and file helpers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace llm {

// The text as one line of a terminal: control characters are replaced by ?. one_short_line
// truncates it after 600 bytes.
std::string one_line(std::string text);
std::string one_short_line(std::string text);

// Thrown if a file is missing, unreadable or invalid. The message is one line that names the
// file. It may quote the file's content, so control characters are replaced by ? and long texts
// are truncated.
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

    // Releases the physical memory of these bytes (madvise). They can be read again.
    void forget(std::span<const std::byte> part) const;

 private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// The path of a file or folder in assets/, in the source tree that the program was built from.
std::string asset(const std::string& name);

// The default folder of a trained model: build/models/NAME.
std::string model_folder(const std::string& name);

bool is_folder(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
void make_folder(const std::filesystem::path& folder);  // throws FileError

// The files of a folder, sorted; hidden ones are skipped.
std::vector<std::string> files_in(const std::filesystem::path& folder);

// Writes to a temporary name first and renames the file when it is complete. Throws FileError,
// with the system's reason, for example "No space left on device".
void write_file(const std::filesystem::path& file,
                const std::function<void(std::ostream&)>& write);

// The same for a text.
void write_text_file(const std::filesystem::path& file, const std::string& text);

// Removes a file, if there is one.
void remove_file(const std::filesystem::path& file);

// Throws FileError if write_file could not create this file.
void check_writable(const std::filesystem::path& file);

// Writes at the end of a file, at once. Throws FileError.
void append_to_file(const std::filesystem::path& file, const std::string& text);

// The lines of a file that end in a line feed; none if it does not exist. A killed program can
// leave a part of a line at the end.
std::vector<std::string> complete_lines(const std::filesystem::path& file);

}  // namespace llm
