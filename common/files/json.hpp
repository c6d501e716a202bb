// Parses and writes JSON as a tree that keeps the order of members. json_file.hpp reads files
// by key, apps/serve/api/request_fields.hpp requests.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace llm {

struct JsonMember;
struct Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<JsonMember>;

// An integer that does not fit into 64 bits with a sign, with all its digits.
struct LargeInteger {
    std::string digits;
    bool operator==(const LargeInteger&) const = default;
};

// (Copies and destructors are in the .cpp file, so that files that build many values compile
// faster.)
struct Json {
    std::variant<std::nullptr_t, bool, std::int64_t, LargeInteger, double, std::string,
                 JsonArray, JsonObject>
        value;

    Json(std::nullptr_t = nullptr);
    Json(std::same_as<bool> auto truth) : Json(Truth{truth}) {}
    Json(int integer);
    Json(std::int64_t integer);
    Json(std::size_t integer);
    Json(LargeInteger integer);
    Json(double number);
    Json(const char* text);
    Json(std::string text);
    Json(JsonArray elements);
    Json(JsonObject members);
    template <class T>
    Json(const std::vector<T>& elements) : Json(JsonArray(elements.begin(), elements.end())) {}
    Json(const Json&);
    Json(Json&&) noexcept;
    Json& operator=(const Json&);
    Json& operator=(Json&&) noexcept;
    ~Json();

    // The value if it has this type, otherwise nullptr.
    template <class T>
    const T* as() const {
        return std::get_if<T>(&value);
    }
    // The value of an integer or a number, rounded to a double; otherwise nullopt.
    std::optional<double> number() const;
    // A member of an object; nullptr if there is none, or if this is no object.
    const Json* find(std::string_view key) const;

 private:
    struct Truth {
        bool value;
    };
    explicit Json(Truth truth);
};
// Numbers are equal if their values are: 1 and 1.0. Large integers are compared by digits.
bool operator==(const Json& a, const Json& b);

struct JsonMember {
    std::string key;
    Json value;

    bool operator==(const JsonMember&) const = default;
    JsonMember(std::string key_, Json value_)
        : key(std::move(key_)), value(std::move(value_)) {}
};

// Parses a text. Throws FileError, whose message begins with the source, if the text is not
// JSON (with the position), if it has a zero byte, if an object has a key twice (with the key),
// if values are nested more than 128 deep, or if a number is too large for a double.
Json parse_json(std::string_view text, const std::string& source);

// The text without spaces and line breaks. Bytes that are not UTF-8 become U+FFFD; numbers that
// are not finite, which JSON does not have, become the strings "inf", "-inf" and "nan".
std::string json_text(const Json& json);

// The first 60 bytes of it, for messages.
std::string brief_json(const Json& json);

// The text with a space after each comma and colon outside of strings: Python's json.dumps with
// ensure_ascii=False, which chat templates show tools with.
std::string spaced_json_text(const Json& json);

// The members of an object to write; large integers become numbers of 17 digits. A key with
// dots names a member of a nested object, or, if a part is a number, an element of a list:
// "pre_tokenizer.pretokenizers.0.type".
using JsonMembers = JsonObject;
std::string json_line(const JsonMembers& members);  // one line, with a line feed
void write_json(const std::filesystem::path& file,  // throws FileError
                const JsonMembers& members);

}  // namespace llm
