#include "common/files/json_text.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

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

constexpr int max_json_depth = 128;  // programs read a value recursively

// nlohmann::json or nlohmann::ordered_json.
template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& source) try {
    // Of each object that has not ended, the keys so far.
    std::vector<std::set<std::string>> keys;
    const auto check = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
        using Event = typename AnyJson::parse_event_t;
        if (depth > max_json_depth)
            throw FileError(
                fmt::format("{}: nested more than {} deep", source, max_json_depth));
        if (event == Event::object_start) keys.emplace_back();
        if (event == Event::object_end) keys.pop_back();
        if (event == Event::key &&
            !keys.back().insert(parsed.template get<std::string>()).second)
            throw FileError(fmt::format("{}: an object has the key {} twice", source,
                                        parsed.template get<std::string>()));
        return true;
    };
    return AnyJson::parse(text, check);
} catch (const typename AnyJson::parse_error& error) {
    throw FileError(
        fmt::format("{}: not valid JSON at {}", source, position_text(text, error.byte)));
} catch (const typename AnyJson::out_of_range&) {
    throw FileError(source + ": a number is too large");
}

}  // namespace

nlohmann::json parse_json_object(std::string_view text, const std::string& source) {
    nlohmann::json json = parse<nlohmann::json>(text, source);
    if (!json.is_object()) throw FileError(source + ": not a JSON object");
    return json;
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source) {
    return parse<nlohmann::ordered_json>(text, source);
}

std::string pointer_to(const std::string& key) {
    std::string pointer = "/" + key;
    for (char& c : pointer)
        if (c == '.') c = '/';
    return pointer;
}

}  // namespace llm
