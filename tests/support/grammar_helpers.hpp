// For the tests of constrained decoding: texts of a grammar, random schemas and their values.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "chapters/23_structured_output/grammar.hpp"
#include "common/files/json.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/random.hpp"

namespace llm {

inline bool matches(const Grammar& grammar, const std::string& text) {
    return is_complete(advance(grammar, start_state(grammar), text));
}

inline Json json(const std::string& text) { return parse_json(text, "text"); }

// Does a value satisfy a schema? By the meaning of each keyword, without a grammar.
inline bool satisfies(const Json& value, const Json& schema, const Json& root) {
    const auto limit = [&](const char* keyword, std::size_t otherwise) {
        const Json* given = schema.find(keyword);
        return given ? static_cast<std::size_t>(*given->as<std::int64_t>()) : otherwise;
    };
    const auto is_within = [&](std::size_t size, const char* min, const char* max) {
        return limit(min, 0) <= size && size <= limit(max, SIZE_MAX);
    };
    if (const Json* reference = schema.find("$ref")) {
        const std::string name = *reference->as<std::string>();
        return satisfies(value, name == "#" ? root : *root.find("$defs")->find(name.substr(8)),
                         root);
    }
    if (const Json* options = schema.find("anyOf")) {
        const JsonArray& all = *options->as<JsonArray>();
        return std::any_of(all.begin(), all.end(),
                           [&](const Json& option) { return satisfies(value, option, root); });
    }
    if (const Json* constant = schema.find("const"))
        return json_text(*constant) == json_text(value);
    if (const Json* values = schema.find("enum")) {
        const JsonArray& all = *values->as<JsonArray>();
        return std::any_of(all.begin(), all.end(),
                           [&](const Json& one) { return json_text(one) == json_text(value); });
    }
    if (!schema.find("type")) return true;
    const std::string type = *schema.find("type")->as<std::string>();
    if (type == "integer") return value.as<std::int64_t>() != nullptr;
    if (type == "number") return value.as<std::int64_t>() || value.as<double>();
    if (type == "boolean") return value.as<bool>() != nullptr;
    if (type == "null") return value.as<std::nullptr_t>() != nullptr;
    if (type == "string")
        return value.as<std::string>() &&
               is_within(characters(*value.as<std::string>()).size(), "minLength", "maxLength");
    if (type == "array") {
        const JsonArray* elements = value.as<JsonArray>();
        return elements && is_within(elements->size(), "minItems", "maxItems") &&
               (!schema.find("items") ||
                std::all_of(elements->begin(), elements->end(), [&](const Json& element) {
                    return satisfies(element, *schema.find("items"), root);
                }));
    }
    const JsonObject* members = value.as<JsonObject>();
    if (!members || !schema.find("properties")) return members != nullptr;
    for (const Json& name : *schema.find("required")->as<JsonArray>())
        if (!value.find(*name.as<std::string>())) return false;
    return std::all_of(members->begin(), members->end(), [&](const JsonMember& member) {
        const Json* property = schema.find("properties")->find(member.key);
        return property && satisfies(member.value, *property, root);
    });
}

// Random schemas of all keywords, and random values of a schema.
struct RandomJson {
    Generator generator;
    std::uint32_t below(std::uint32_t count) { return generator.next_32_bits() % count; }

    std::string text() {
        static const std::vector<std::string> pieces = {
            "a", "B", " ", "\"", "\\", "\n", "\t", "é", "語", "😀", "{", "}", ",", "\x01", "/"};
        std::string result;
        for (std::uint32_t n = below(5); n > 0; --n) result += pieces[below(pieces.size())];
        return result;
    }
    Json scalar() {
        const std::uint32_t kind = below(5);
        if (kind == 0) return {text()};
        if (kind == 1) return {std::int64_t(below(100000)) - 50000};
        if (kind == 2) return {(double(below(100000)) - 50000) / 1024};
        if (kind == 3) return {below(2) == 0};
        return {nullptr};
    }

    // {"$defs": ...} at depth 0: a tree, whose children are optional.
    Json schema(int depth = 0) {
        static const std::vector<std::string> types = {"string", "integer", "number", "boolean",
                                                       "null"};
        const std::uint32_t kind = depth > 2 ? below(3) : below(7);
        JsonObject keywords;
        if (kind == 0) {
            JsonArray values;
            for (std::uint32_t n = 1 + below(4); n > 0; --n) values.push_back(scalar());
            keywords = {{"enum", {values}}};
        } else if (kind == 1) {
            keywords = {{"const", scalar()}};
        } else if (kind == 2) {
            keywords = {{"type", {types[below(5)]}}};
            if (*keywords[0].value.as<std::string>() == "string")
                add_limits(keywords, "Length");
        } else if (kind == 3) {
            keywords = {{"type", {"array"}}, {"items", schema(depth + 1)}};
            add_limits(keywords, "Items");
        } else if (kind == 4) {
            keywords = {{"anyOf", {JsonArray{schema(depth + 1), schema(depth + 1)}}}};
        } else if (kind == 5) {
            keywords = {{"$ref", {"#/$defs/tree"}}};
        } else {
            keywords = object(depth);
        }
        if (depth == 0 && kind != 5) keywords.push_back({"$defs", definitions()});
        return depth == 0 && kind == 5 ? schema() : Json{keywords};
    }
    static Json definitions() {
        return parse_json(R"({"tree": {"type": "object", "properties": {
            "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]},
            "value": {"type": "integer"}}, "required": ["value"]}})",
                          "definitions");
    }
    JsonObject object(int depth) {
        JsonObject properties;
        JsonArray required;
        for (std::uint32_t n = below(4); n > 0; --n) {
            const std::string name = text() + to_text(n);
            properties.push_back({name, schema(depth + 1)});
            if (below(2) == 0) required.push_back({name});
        }
        return {{"type", {"object"}},
                {"properties", {properties}},
                {"required", {required}},
                {"additionalProperties", {false}}};
    }
    void add_limits(JsonObject& keywords, const std::string& what) {
        const std::int64_t min = below(3);
        if (below(2) == 0) keywords.push_back({"min" + what, {min}});
        if (below(2) == 0) keywords.push_back({"max" + what, {min + below(3)}});
    }

    // A value, by trial: texts until one satisfies the schema.
    Json value(const Json& schema, const Json& root) {
        if (const Json* options = schema.find("anyOf"))
            return value((*options->as<JsonArray>())[below(2)], root);
        if (const Json* values = schema.find("enum"))
            return (*values->as<JsonArray>())[below(values->as<JsonArray>()->size())];
        if (const Json* constant = schema.find("const")) return *constant;
        if (schema.find("$ref")) return value(*root.find("$defs")->find("tree"), root);
        while (true) {
            const Json candidate = value_of_type(schema, root);
            if (satisfies(candidate, schema, root)) return candidate;
        }
    }
    Json value_of_type(const Json& schema, const Json& root) {
        const std::string type = *schema.find("type")->as<std::string>();
        if (type == "array") {
            JsonArray elements;
            for (std::uint32_t n = below(5); n > 0; --n)
                elements.push_back(value(*schema.find("items"), root));
            return {elements};
        }
        if (type != "object") return type == "string" ? Json{text()} : scalar();
        JsonObject members;
        for (const auto& [name, property] : *schema.find("properties")->as<JsonObject>())
            if (below(4) > 0) members.push_back({name, value(property, root)});
        return {members};
    }
};

}  // namespace llm
