#include <algorithm>
#include <cmath>

#include "chapters/23_structured_output/schema/schema_compiler.hpp"

namespace llm {
namespace {

const TypeNames all_types = {"object", "array", "string", "number", "boolean", "null"};

// The types that have a keyword: a schema without a type that has it means them.
const std::map<std::string, std::set<std::string>> keywords_of_types = {
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
      "minProperties", "maxProperties"}},
    {"array",
     {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};

// Keywords that no grammar enforces, and the others that restrict something.
const std::set<std::string> unsupported = {"not",          "if",
                                           "then",         "else",
                                           "contains",     "minContains",
                                           "maxContains",  "dependentRequired",
                                           "dependencies", "dependentSchemas"};
const std::set<std::string> other_keywords = {"type",  "nullable", "enum",  "const",
                                              "anyOf", "oneOf",    "allOf", "$ref"};

std::string lower_case(std::string text) {
    std::erase(text, '_');
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return text;
}

// The keyword that this one seems to mean; empty: none.
std::string meant(const std::string& keyword) {
    static const std::map<std::string, std::string> known = [] {
        std::map<std::string, std::string> spellings;
        for (const auto& [type, keywords] : keywords_of_types)
            for (const std::string& each : keywords) spellings[lower_case(each)] = each;
        for (const auto* keywords : {&unsupported, &other_keywords})
            for (const std::string& each : *keywords) spellings[lower_case(each)] = each;
        return spellings;
    }();
    const auto found = known.find(lower_case(keyword));
    return found == known.end() || found->second == keyword ? "" : found->second;
}

// Does the keyword restrict anything here?
bool is_neutral(const SchemaPart& schema, const std::string& keyword, const Json& value) {
    if (keyword == "not")  // {} and true make a schema that nothing satisfies
        return value.as<bool>() || value == Json(JsonObject{});
    if (keyword == "if") return !schema.schema->find("then") && !schema.schema->find("else");
    if (keyword == "then" || keyword == "else") return !schema.schema->find("if");
    if (keyword == "minContains" || keyword == "maxContains")
        return !schema.schema->find("contains");
    return keyword.starts_with("depend") && value == Json(JsonObject{});
}

// The type of a JSON value. A number without a fraction, such as 1.0, is an integer (JSON
// Schema 2020-12, 6.1.1).
std::string type_of(const Json& value) {
    if (value.as<JsonObject>()) return "object";
    if (value.as<JsonArray>()) return "array";
    if (value.as<std::string>()) return "string";
    if (const std::optional<double> number = value.number())
        return *number == std::floor(*number) ? "integer" : "number";
    return value.as<bool>() ? "boolean" : "null";
}

TypeNames names_in(const SchemaPart& type, const SchemaPart& schema) {
    TypeNames names;
    for (const Json& name :
         type.schema->as<JsonArray>() ? *type.schema->as<JsonArray>() : JsonArray{*type.schema})
        names.insert(expect<std::string>({&name, type.path}, "the name of a type"));
    require(!names.empty(), "json_schema: {}: expected a type, got []", type.path);
    for (const std::string& name : names)
        require(all_types.contains(name) || name == "integer",
                "json_schema: {}: unknown type '{}'", type.path, name);
    const Json* nullable = schema.schema->find("nullable");  // OpenAPI 3.0
    if (nullable && *nullable == Json(true)) names.insert("null");
    return names;
}

constexpr std::size_t max_comparisons = 1 << 22;  // of values

bool contains(const JsonArray& values, const Json& value) {
    return std::find(values.begin(), values.end(), value) != values.end();
}

bool allows(const TypeNames& types, const std::string& type) {
    return types.contains(type) || (type == "integer" && types.contains("number"));
}

// The types that all "type"s of a schema allow; none without any.
std::optional<TypeNames> named_types(const SchemaParts& schema) {
    std::optional<TypeNames> types;
    for (const SchemaPart& part : schema.parts) {
        if (!part.schema->find("type")) continue;
        const TypeNames names = names_in(member(part, "type"), part);
        if (!types) {
            types = names;
            continue;
        }
        TypeNames common;
        for (const std::string& name : *types)
            if (allows(names, name)) common.insert(name);
        for (const std::string& name : names)
            if (allows(*types, name)) common.insert(name);
        types = common;
    }
    return types;
}

}  // namespace

bool has_type(const Json& value, const std::string& type) {
    return allows({type}, type_of(value));
}

TypeNames types_of(const SchemaParts& schema) {
    if (const auto named = named_types(schema)) return *named;
    const TypeNames restricted = restricted_types(schema);
    return restricted.empty() ? all_types : restricted;
}

TypeNames restricted_types(const SchemaParts& schema) {
    TypeNames types;
    for (const auto& [type, keywords] : keywords_of_types)
        for (const std::string& keyword : keywords)
            if (schema.find(keyword)) types.insert(type);
    return types;
}

std::optional<JsonArray> values_of(const SchemaParts& schema) {
    std::optional<JsonArray> values;
    const auto keep_only = [&](const JsonArray& allowed) {
        if (!values) {
            values = allowed;
            return;
        }
        require(values->size() * allowed.size() <= max_comparisons,
                "json_schema: {}: too many values to compare", schema.path());
        std::erase_if(*values, [&](const Json& value) { return !contains(allowed, value); });
    };
    for (const SchemaPart& list : schema.all("enum")) {
        const JsonArray& allowed = expect<JsonArray>(list, "a list of values");
        require(!allowed.empty(), "json_schema: {}: expected a list of values, got []",
                list.path);
        keep_only(allowed);
    }
    for (const SchemaPart& value : schema.all("const")) keep_only({*value.schema});
    const auto types = named_types(schema);
    if (values && types)
        std::erase_if(*values, [&](const Json& value) {
            return std::none_of(types->begin(), types->end(),
                                [&](const std::string& type) { return has_type(value, type); });
        });
    return values;
}

void check_keywords(const SchemaPart& schema, Unenforced unenforced) {
    for (const auto& [keyword, value] : *schema.schema->as<JsonObject>()) {
        const std::string other = meant(keyword);
        require(other.empty(), "json_schema: {}: unknown keyword {}; expected {}", schema.path,
                keyword, other);
        require(unenforced == Unenforced::ignored || !unsupported.contains(keyword) ||
                    is_neutral(schema, keyword, value),
                "json_schema: {}: the keyword {} is not supported", schema.path, keyword);
    }
}

namespace {

// The schemas of one anyOf or oneOf, each with what stands beside it; none without any.
std::vector<SchemaParts> options_of(const SchemaDocument& document, const SchemaParts& schema) {
    std::vector<SchemaParts> options;
    for (const char* keyword : {"anyOf", "oneOf"})
        for (const SchemaPart& list : schema.all(keyword)) {
            for (const Json& option : expect<JsonArray>(list, "a list of schemas")) {
                std::vector<SchemaPart> parts = schema.parts;
                for (SchemaPart& part : parts) part.done.insert(keyword);
                parts.push_back({&option, list.path});
                options.push_back(document.with_references(parts));
            }
            return options;
        }
    return options;
}

bool have_common_type(const TypeNames& a, const TypeNames& b) {
    return std::any_of(a.begin(), a.end(),
                       [&](const std::string& type) { return allows(b, type); }) ||
           std::any_of(b.begin(), b.end(),
                       [&](const std::string& type) { return allows(a, type); });
}

// Can no text that is written for schema a satisfy b? False if that is not known, or cannot be
// known with the comparisons that are left.
bool excludes(const SchemaDocument& document, const SchemaParts& a, const SchemaParts& b,
              std::size_t depth, std::size_t& num_left) {
    if (a.never || b.never) return true;
    if (depth == 0 || num_left == 0) return false;
    --num_left;
    for (const bool of_a : {true, false}) {
        const std::vector<SchemaParts> options = options_of(document, of_a ? a : b);
        if (options.empty()) continue;
        num_left -= std::min(num_left, options.size());
        return std::all_of(options.begin(), options.end(), [&](const SchemaParts& option) {
            return of_a ? excludes(document, option, b, depth - 1, num_left)
                        : excludes(document, a, option, depth - 1, num_left);
        });
    }

    const auto values_a = values_of(a), values_b = values_of(b);
    const auto types = [](const std::optional<JsonArray>& values, const TypeNames& otherwise) {
        if (!values) return otherwise;
        TypeNames names;
        for (const Json& value : *values) names.insert(type_of(value));
        return names;
    };
    const TypeNames types_b = types(values_b, named_types(b).value_or(all_types));
    if (!have_common_type(types(values_a, types_of(a)), types_b)) return true;
    if (values_a && values_b)
        return values_a->size() * values_b->size() <= max_comparisons &&
               std::none_of(values_a->begin(), values_a->end(),
                            [&](const Json& value) { return contains(*values_b, value); });
    if (values_a || values_b || types_of(a) != TypeNames{"object"}) return false;

    // A member that one has and the other cannot have, or that differs.
    for (const std::string& name : required_names(b)) {
        const MemberSchema of_a = schema_of_member(a, name);
        if (!of_a.is_declared && of_a.parts.empty()) return true;  // it is not written
    }
    for (const std::string& name : required_names(a))
        if (excludes(document, document.with_references(schema_of_member(a, name).parts),
                     document.with_references(schema_of_member(b, name).parts), depth - 1,
                     num_left))
            return true;
    return false;
}

}  // namespace

bool are_disjoint(const SchemaDocument& document, const SchemaParts& a, const SchemaParts& b,
                  std::size_t& num_left) {
    return excludes(document, a, b, 4, num_left) && excludes(document, b, a, 4, num_left);
}

}  // namespace llm
