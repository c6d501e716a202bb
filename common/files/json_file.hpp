// Reading JSON files such as config.json. A key with dots names a member of a
// nested object: "a.b".
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/json.hpp"
#include "common/files/mapped_file.hpp"

namespace llm {

// A setting that a file may have, with a value that is not supported.
struct UnsupportedValue : FileError {
    std::string key;
    UnsupportedValue(const std::string& message, std::string key_)
        : FileError(message), key(std::move(key_)) {}
};

// A value in an error message: one line.
std::string shortened(const Json& value);

// An object of a JSON file: the root or a nested one. The accessors throw FileError, with file
// and key, if a value is missing or has another type.
class JsonFile {
 public:
    explicit JsonFile(const std::filesystem::path& file);  // throws FileError
    // The object in this text, for example a line of the file. Throws FileError.
    JsonFile(const std::filesystem::path& file, std::string_view text);
    // An object that was made of the file's; messages call it by this key.
    static JsonFile made_of(const std::filesystem::path& file, JsonObject object,
                            const std::string& inside);

    const std::filesystem::path& path() const { return path_; }
    bool has(const std::string& key) const;  // false for null
    bool is_null(const std::string& key) const;
    bool is_text(const std::string& key) const;
    bool is_object(const std::string& key) const;
    bool is_array(const std::string& key) const;
    std::size_t size(const std::string& key) const;  // an integer from 1 to 2^24
    double number(const std::string& key) const;     // finite
    bool boolean(const std::string& key) const;
    std::string text(const std::string& key) const;

    // The same, or another value if the key is missing or null; positive_or also requires a
    // number above 0.
    std::size_t size_or(const std::string& key, std::size_t otherwise) const {
        return has(key) ? size(key) : otherwise;
    }
    std::size_t count_or(const std::string& key, std::size_t otherwise) const {  // may be 0
        return has(key) && value(key) == Json(0) ? 0 : size_or(key, otherwise);
    }
    bool boolean_or(const std::string& key, bool otherwise) const {
        return has(key) ? boolean(key) : otherwise;
    }
    bool truth_or(const std::string& key, bool otherwise) const {  // a number: is it not 0?
        return has(key) && value(key).number() ? number(key) != 0 : boolean_or(key, otherwise);
    }
    double positive_or(const std::string& key, double otherwise) const;

    const JsonObject& members() const;                // of this object
    const Json& value(const std::string& key) const;  // of any type
    std::map<std::string, std::string> texts(
        const std::string& key) const;  // an object whose values are strings

    // Nested objects: one member, or all elements of an array.
    JsonFile object(const std::string& key) const;
    std::vector<JsonFile> objects(const std::string& key) const;

    // An object whose values are integers from 0 to 2^31 - 1, sorted by name; one such integer
    // or an array of them; an array whose elements are strings or arrays of strings.
    std::vector<std::pair<std::string, std::int64_t>> ids_by_name(const std::string& key) const;
    std::vector<std::int64_t> ids(const std::string& key) const;
    std::vector<double> numbers(const std::string& key) const;  // an array of finite numbers
    std::vector<std::vector<std::string>> text_lists(const std::string& key) const;

    // The members that none of these functions was asked for, with their full keys in this
    // object: a setting that is ignored may be the one that matters. Of an object of which
    // single members were asked for, each one counts.
    std::vector<JsonMember> unread() const;
    void ignore(const std::string& key) const;  // counts as read
    JsonFile unread_copy() const;               // of which nothing counts as read
    bool was_read(const std::string& key) const;
    // What a reader wants to say about the object once it has been read.
    void remark(const std::string& text) const;
    const std::vector<std::string>& remarks() const;
    // Throws FileError, which names an unread key. Those in the list may be left out, and those
    // without a setting: null, false, an empty list or object.
    void reject_unread(const std::set<std::string>& may_be_unread) const;

    // Throws FileError: "FILE: OBJECT: reason" (without OBJECT for the root), or, for a problem
    // of one member, "FILE: OBJECT.KEY problem".
    [[noreturn]] void reject(const std::string& reason) const;
    [[noreturn]] void reject(const std::string& key, const std::string& problem) const;
    // Throws UnsupportedValue: "FILE: KEY VALUE is not supported; supported: ...", or "FILE:
    // KEY VALUE is not supported: nothing reads it".
    [[noreturn]] void reject_unread_value(const std::string& key, const Json& value) const;
    [[noreturn]] void reject_value(const std::string& key, const std::string& value,
                                   const std::string& supported) const;
    [[noreturn]] void reject_value(const std::string& key, const std::string& value,
                                   const std::vector<std::string>& supported) const;

 private:
    struct Content;
    JsonFile() = default;
    std::filesystem::path path_;
    std::string inside_;  // the key of this object in the file; empty for the root
    std::shared_ptr<const Content> content_;

    std::string full_key(const std::string& key) const;
    JsonFile inner(const std::string& key, const Content& content) const;
};

}  // namespace llm
