#include "common/files/json.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

using nlohmann::ordered_json;

// "line 3, column 7", or of a text of one line "column 7". Positions are counted from 1.
std::string position_text(std::string_view text, std::size_t byte) {
    const std::string_view before =
        text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
    const bool has_lines = text.find('\n') < text.size();
    return has_lines ? fmt::format("line {}, column {}", line, column)
                     : fmt::format("column {}", column);
}

constexpr std::size_t max_json_depth = 128;  // programs read a value recursively

// Builds the tree while nlohmann's parser reads the text.
class TreeBuilder final : public nlohmann::json_sax<ordered_json> {
 public:
    TreeBuilder(std::string_view text, const std::string& source)
        : text_(text), source_(source) {}

    Json root;

    bool null() override { return add(nullptr); }
    bool boolean(bool truth) override { return add(truth); }
    bool number_integer(std::int64_t integer) override { return add(integer); }
    bool number_unsigned(std::uint64_t integer) override { return add(std::size_t(integer)); }
    bool number_float(double number, const std::string& text) override {
        if (text.find_first_of(".eE") == text.npos) return add(LargeInteger{text});
        return add(number);
    }
    bool string(std::string& text) override { return add(std::move(text)); }
    bool binary(ordered_json::binary_t&) override { return false; }  // not in texts
    bool start_object(std::size_t) override { return open(JsonObject{}); }
    bool start_array(std::size_t) override { return open(JsonArray{}); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(std::string& key) override {
        if (!open_.back().keys.insert(key).second)
            throw FileError(fmt::format("{}: an object has the key {} twice", source_, key));
        open_.back().key = std::move(key);
        return true;
    }
    bool parse_error(std::size_t byte, const std::string&,
                     const nlohmann::detail::exception& error) override {
        constexpr int number_out_of_range = 406;
        if (error.id == number_out_of_range)
            throw FileError(source_ + ": a number is too large");
        throw FileError(
            fmt::format("{}: not valid JSON at {}", source_, position_text(text_, byte)));
    }

 private:
    // An array or object that has not ended; of an object the keys so far and the last one.
    struct Open {
        Json json;
        std::string key = {};
        std::unordered_set<std::string> keys = {};
    };
    std::string_view text_;
    const std::string& source_;
    std::vector<Open> open_{};

    bool open(Json json) {
        if (open_.size() == max_json_depth)
            throw FileError(
                fmt::format("{}: nested more than {} deep", source_, max_json_depth));
        open_.push_back({std::move(json)});
        return true;
    }
    bool close() {
        Json json = std::move(open_.back().json);
        open_.pop_back();
        return add(std::move(json));
    }
    bool add(Json json) {
        if (open_.empty())
            root = std::move(json);
        else if (auto* elements = std::get_if<JsonArray>(&open_.back().json.value))
            elements->push_back(std::move(json));
        else
            std::get<JsonObject>(open_.back().json.value)
                .emplace_back(std::move(open_.back().key), std::move(json));
        return true;
    }
};

// NaN has a sign, which means nothing.
ordered_json number_to_write(double number) {
    if (std::isfinite(number)) return number;
    return std::isnan(number) ? "nan" : fmt::format("{}", number);
}

ordered_json to_write(const Json& json) {
    if (const JsonArray* elements = json.as<JsonArray>()) {
        ordered_json array = ordered_json::array();
        for (const Json& element : *elements) array.push_back(to_write(element));
        return array;
    }
    if (const JsonObject* members = json.as<JsonObject>()) {
        ordered_json object = ordered_json::object();
        // object[key] would search for the key: quadratic time for a vocabulary.
        auto& written = object.get_ref<ordered_json::object_t&>();
        for (const auto& [key, member] : *members) written.push_back({key, to_write(member)});
        return object;
    }
    if (const bool* truth = json.as<bool>()) return *truth;
    if (const std::int64_t* integer = json.as<std::int64_t>()) return *integer;
    if (const std::optional<double> number = json.number()) return number_to_write(*number);
    if (const std::string* text = json.as<std::string>()) return *text;
    return nullptr;
}

// With an object for each dot in a key.
ordered_json nested(const JsonMembers& members) {
    ordered_json json = ordered_json::object();
    for (const auto& [key, value] : members) {
        std::string pointer = "/" + key;  // RFC 6901
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        json[ordered_json::json_pointer(pointer)] = to_write(value);
    }
    return json;
}

std::string one_line(const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

Json::Json(std::nullptr_t) : value(nullptr) {}
Json::Json(Truth truth) : value(truth.value) {}
Json::Json(int integer) : value(std::int64_t(integer)) {}
Json::Json(std::int64_t integer) : value(integer) {}
Json::Json(std::size_t integer) : value(std::int64_t(integer)) {
    if (integer > std::size_t(INT64_MAX)) value = LargeInteger{std::to_string(integer)};
}
Json::Json(LargeInteger integer) : value(std::move(integer)) {}
Json::Json(double number) : value(number) {}
Json::Json(const char* text) : value(std::string(text)) {}
Json::Json(std::string text) : value(std::move(text)) {}
Json::Json(JsonArray elements) : value(std::move(elements)) {}
Json::Json(JsonObject members) : value(std::move(members)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

std::optional<double> Json::number() const {
    if (const auto* integer = as<std::int64_t>()) return double(*integer);
    if (const auto* large = as<LargeInteger>())
        return std::strtod(large->digits.c_str(), nullptr);
    if (const auto* real = as<double>()) return *real;
    return std::nullopt;
}

bool operator==(const Json& a, const Json& b) {
    if (a.as<LargeInteger>() && b.as<LargeInteger>()) return a.value == b.value;
    const std::optional<double> left = a.number(), right = b.number();
    return left && right ? *left == *right : a.value == b.value;
}

const Json* Json::find(std::string_view key) const {
    if (const JsonObject* members = as<JsonObject>())
        for (const auto& [name, member] : *members)
            if (name == key) return &member;
    return nullptr;
}

Json parse_json(std::string_view text, const std::string& source) {
    if (const std::size_t zero = text.find('\0'); zero != text.npos)  // nlohmann stops there
        throw FileError(
            fmt::format("{}: a zero byte at {}", source, position_text(text, zero + 1)));
    TreeBuilder builder(text, source);
    ordered_json::sax_parse(text, &builder);
    return std::move(builder.root);
}

namespace {

std::string text_of(const Json& json, std::string_view comma, std::string_view colon) {
    std::string text;
    const auto append = [&](const std::string& part) {
        if (!text.empty()) text += comma;
        text += part;
    };
    if (const JsonArray* elements = json.as<JsonArray>()) {
        for (const Json& element : *elements) append(text_of(element, comma, colon));
        return "[" + text + "]";
    }
    if (const JsonObject* members = json.as<JsonObject>()) {
        for (const auto& [key, member] : *members)
            append(fmt::format("{}{}{}", one_line(key), colon, text_of(member, comma, colon)));
        return "{" + text + "}";
    }
    if (const LargeInteger* integer = json.as<LargeInteger>()) return integer->digits;
    return one_line(to_write(json));
}

}  // namespace

std::string json_text(const Json& json) { return text_of(json, ",", ":"); }

std::string brief_json(const Json& json) {
    const std::string text = json_text(json);
    std::size_t end = 60;
    if (text.size() <= end) return text;
    while ((text[end] & 0xC0) == 0x80) --end;  // inside of a character in UTF-8
    return text.substr(0, end) + "...";
}

std::string spaced_json_text(const Json& json) { return text_of(json, ", ", ": "); }

std::string json_line(const JsonMembers& members) { return one_line(nested(members)) + "\n"; }

void write_json(const std::filesystem::path& file, const JsonMembers& members) {
    write_text_file(file, nested(members).dump(2) + "\n");
}

}  // namespace llm
