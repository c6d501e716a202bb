// A JSON value as a tree, with the members of objects in the order of the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace llm {

struct Json;
struct JsonMember;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<JsonMember>;
struct Json {
    std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, JsonArray, JsonObject>
        value;

    // The value if it has this type, otherwise nullptr.
    template <class T>
    const T* as() const {
        return std::get_if<T>(&value);
    }
    // A member of an object; nullptr if there is none, or if this is no object.
    const Json* find(std::string_view key) const;
};
struct JsonMember {
    std::string key;
    Json value;
};

// Parses a text. Throws FileError, which begins with the name of the source: with the position
// if the text is no JSON, and if an object has a key twice or the value is nested more than 128
// deep.
Json parse_json(std::string_view text, const std::string& source);

// The text without spaces and line breaks. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Json& json);

// The same with a space after each comma and colon outside of strings: Python's json.dumps with
// ensure_ascii=False, which chat templates show tools with.
std::string spaced_json_text(const Json& json);

}  // namespace llm
