// JSON files, config.json and the like, read and written. A key with points leads into nested
// objects: "a.b".
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/files/mapped_file.hpp"

namespace llm {

// An object of the file: the outermost, or one inside it. The calls throw FileError, with file
// and key, if a value is missing or of another kind.
class JsonFile {
 public:
    explicit JsonFile(const std::filesystem::path& file);  // throws FileError

    const std::filesystem::path& path() const { return path_; }
    bool has(const std::string& key) const;  // null counts as absent
    bool is_null(const std::string& key) const;
    bool is_object(const std::string& key) const;
    std::size_t size(const std::string& key) const;  // a whole number from 1 to 2^24
    double number(const std::string& key) const;     // finite
    bool boolean(const std::string& key) const;
    std::string text(const std::string& key) const;
    std::map<std::string, std::string> texts(
        const std::string& key) const;  // an object of them

    // Objects inside this one: a member, or all of a list.
    JsonFile object(const std::string& key) const;
    std::vector<JsonFile> objects(const std::string& key) const;

    // An object of whole numbers from 0 to 2^31 - 1, in the order of its names; one such number
    // or a list of them; a list whose elements are texts (one each) or lists of texts.
    std::vector<std::pair<std::string, std::int64_t>> ids_by_name(const std::string& key) const;
    std::vector<std::int64_t> ids(const std::string& key) const;
    std::vector<std::vector<std::string>> text_lists(const std::string& key) const;

    [[noreturn]] void refuse(const std::string& reason) const;  // FileError: "FILE: reason"

 private:
    struct Content;
    std::filesystem::path path_;
    std::string inside_;  // the key of this object, with a point behind it
    std::shared_ptr<const Content> content_;

    JsonFile inner(const std::string& key, const Content& content) const;
};

// Writes an object with these members, in this order.
using JsonValue =
    std::variant<bool, std::size_t, double, std::string, std::vector<std::string>,
                 std::vector<std::pair<std::string, std::size_t>>,  // an object of ids
                 std::vector<std::vector<std::string>>>;
void write_json(const std::filesystem::path& file,
                const std::vector<std::pair<std::string, JsonValue>>& members);

}  // namespace llm
