#include <algorithm>

#include "chapters/23_structured_output/schema/schema_compiler.hpp"

namespace llm {
namespace {

bool matches_pattern(const std::string& pattern, const std::string& name,
                     const std::string& path) try {
    RegexPool pool;
    return pool.matches(parse_pattern(pool, pattern), name);
} catch (const ValueError& error) {
    throw ValueError("json_schema: " + path + ": " + error.what());
}

}  // namespace

MemberSchema schema_of_member(const SchemaParts& object, const std::string& name) {
    MemberSchema member_schema;
    for (const SchemaPart& part : object.parts) {
        bool is_declared = false;
        const auto add = [&](const Json* schema, const std::string& path) {
            member_schema.parts.push_back({schema, path});
            is_declared = true;
        };
        if (const Json* properties = part.schema->find("properties"))
            if (const Json* schema = properties->find(name))
                add(schema, part.path + "/properties/" + name);
        if (part.schema->find("patternProperties")) {
            const SchemaPart patterns = member(part, "patternProperties");
            for (const auto& [pattern, schema] :
                 expect<JsonObject>(patterns, "an object of schemas"))
                if (matches_pattern(pattern, name, patterns.path))
                    add(&schema, patterns.path + "/" + pattern);
        }
        member_schema.is_declared |= is_declared;
        const Json* others = part.schema->find("additionalProperties");
        if (!is_declared && others)
            member_schema.parts.push_back({others, part.path + "/additionalProperties"});
    }
    return member_schema;
}

std::set<std::string> required_names(const SchemaParts& object) {
    std::set<std::string> names;
    for (const SchemaPart& part : object.parts) {
        if (const Json* required = part.schema->find("required");
            required && !required->as<bool>()) {
            const SchemaPart list = member(part, "required");
            for (const Json& name : expect<JsonArray>(list, "a list of names"))
                names.insert(expect<std::string>({&name, list.path}, "a name"));
        }
        // Draft 3: "required": true in the schema of a property.
        const Json* properties = part.schema->find("properties");
        if (const JsonObject* schemas = properties ? properties->as<JsonObject>() : nullptr)
            for (const auto& [name, schema] : *schemas)
                if (const Json* required = schema.find("required");
                    required && *required == Json(true))
                    names.insert(name);
    }
    return names;
}

std::vector<std::string> property_names(const SchemaParts& object) {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const SchemaPart& properties : object.all("properties"))
        for (const auto& [name, schema] :
             expect<JsonObject>(properties, "an object of schemas"))
            add(name);
    // Names of a dictionary that are all known.
    for (const SchemaPart& part : object.all("propertyNames"))
        if (const auto values = values_of({{part}}))
            for (const Json& name : *values)
                if (const auto* text = name.as<std::string>()) add(*text);
    for (const std::string& name : required_names(object)) add(name);
    return names;
}

}  // namespace llm
