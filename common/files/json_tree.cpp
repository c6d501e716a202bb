#include "common/files/json_tree.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/files/json_text.hpp"

namespace llm {
namespace {

Json tree_of(const nlohmann::ordered_json& json) {
    if (json.is_null()) return {nullptr};
    if (json.is_boolean()) return {json.get<bool>()};
    if (json.is_number_float()) return {json.get<double>()};
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)
        return {json.get<double>()};
    if (json.is_number()) return {json.get<std::int64_t>()};
    if (json.is_string()) return {json.get<std::string>()};
    if (json.is_array()) {
        JsonArray elements;
        for (const auto& element : json) elements.push_back(tree_of(element));
        return {std::move(elements)};
    }
    JsonObject members;
    for (const auto& [key, member] : json.items()) members.push_back({key, tree_of(member)});
    return {std::move(members)};
}

nlohmann::ordered_json of_tree(const Json& json) {
    if (const JsonArray* elements = json.as<JsonArray>()) {
        nlohmann::ordered_json array = nlohmann::ordered_json::array();
        for (const Json& element : *elements) array.push_back(of_tree(element));
        return array;
    }
    if (const JsonObject* members = json.as<JsonObject>()) {
        nlohmann::ordered_json object = nlohmann::ordered_json::object();
        for (const auto& [key, member] : *members) object[key] = of_tree(member);
        return object;
    }
    if (const bool* truth = json.as<bool>()) return *truth;
    if (const std::int64_t* integer = json.as<std::int64_t>()) return *integer;
    if (const double* number = json.as<double>()) return *number;
    if (const std::string* text = json.as<std::string>()) return *text;
    return nullptr;
}

}  // namespace

const Json* Json::find(std::string_view key) const {
    if (const JsonObject* members = as<JsonObject>())
        for (const auto& [name, member] : *members)
            if (name == key) return &member;
    return nullptr;
}

Json parse_json(std::string_view text, const std::string& source) {
    return tree_of(parse_ordered_json(text, source));
}

std::string json_text(const Json& json) {
    return of_tree(json).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string spaced_json_text(const Json& json) {
    std::string text;
    const auto append = [&](const std::string& part) {
        text += (text.empty() ? "" : ", ") + part;
    };
    if (const JsonArray* elements = json.as<JsonArray>()) {
        for (const Json& element : *elements) append(spaced_json_text(element));
        return "[" + text + "]";
    }
    if (const JsonObject* members = json.as<JsonObject>()) {
        for (const auto& [key, member] : *members)
            append(json_text({key}) + ": " + spaced_json_text(member));
        return "{" + text + "}";
    }
    return json_text(json);
}

}  // namespace llm
