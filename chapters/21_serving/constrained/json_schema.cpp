#include "chapters/21_serving/constrained/json_schema.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "chapters/21_serving/constrained/json_rules.hpp"

namespace llm {
namespace {

constexpr std::size_t max_schema_depth = 64;

// Keywords that describe, and restrict nothing.
const std::set<std::string> annotations = {"title",    "description", "default",
                                           "examples", "$comment",    "$schema"};
const std::map<std::string, std::set<std::string>> keywords_of_types = {
    {"object", {"properties", "required", "additionalProperties"}},
    {"array", {"items", "minItems", "maxItems"}},
    {"string", {"minLength", "maxLength"}},
    {"integer", {}},
    {"number", {}},
    {"boolean", {}},
    {"null", {}}};

// The type of a JSON value. A number without a fraction, such as 1.0, is an integer (JSON
// Schema 2020-12, 6.1.1), and an integer is a number, too.
std::string type_of(const Json& value) {
    if (value.as<JsonObject>()) return "object";
    if (value.as<JsonArray>()) return "array";
    if (value.as<std::string>()) return "string";
    if (const std::optional<double> number = value.number())
        return *number == std::floor(*number) ? "integer" : "number";
    return value.as<bool>() ? "boolean" : "null";
}

bool has_type(const Json& value, const std::string& type) {
    const std::string own = type_of(value);
    return own == type || (type == "number" && own == "integer");
}

// Adds the rules of a schema, and of those inside, each one once.
class SchemaCompiler {
 public:
    SchemaCompiler(GrammarRules& rules, const Json& root)
        : rules_(rules), root_(root), json_(add_json_rules(rules)) {}

    RuleIndex compile() { return reference("#", "#"); }

 private:
    GrammarRules& rules_;
    const Json& root_;
    JsonRules json_;
    std::map<std::string, RuleIndex> references_;  // "#/$defs/NAME" and its rule
    std::size_t depth_ = 0;

    // Throws unless all keywords are annotations or among these.
    void check_keywords(const JsonObject& schema, const std::string& path,
                        const std::set<std::string>& known, const std::string& where) const {
        for (const auto& [keyword, value] : schema)
            require(known.contains(keyword) || annotations.contains(keyword) ||
                        (keyword == "$defs" && path == "#"),
                    "json_schema: {}: the keyword {} is not supported{}", path, keyword, where);
    }

    template <class T>
    const T& expect(const Json& value, const std::string& path, const char* what) const {
        require(value.as<T>() != nullptr, "json_schema: {}: expected {}, got {}", path,
                std::string_view(what), json_text(value).substr(0, 40));
        return *value.as<T>();
    }

    std::optional<std::size_t> count(const Json& schema, const char* keyword,
                                     const std::string& path) const {
        const Json* value = schema.find(keyword);
        if (!value) return std::nullopt;
        const std::string at = path + "/" + keyword;
        const std::optional<double> number = value->number();
        require(number && *number == std::floor(*number) && std::abs(*number) < 9.2e18,
                "json_schema: {}: expected an integer, got {}", at,
                json_text(*value).substr(0, 40));
        require(*number >= 0, "json_schema: {}: expected at least 0, got {}", at,
                json_text(*value));
        return static_cast<std::size_t>(*number);
    }

    // A schema that stands in others or refers to itself: its rule is declared first.
    RuleIndex reference(const std::string& name, const std::string& path) {
        if (const auto known = references_.find(name); known != references_.end())
            return known->second;
        const Json* schema = &root_;
        if (name != "#") {
            const Json* definitions = root_.find("$defs");
            const std::string prefix = "#/$defs/";
            schema = definitions && name.starts_with(prefix)
                         ? definitions->find(name.substr(prefix.size()))
                         : nullptr;
        }
        require(schema != nullptr, "json_schema: {}: there is no schema {}", path, name);
        const RuleIndex rule = references_[name] = rules_.declare(name);
        rules_.define(rule, {{compile(*schema, name)}});
        return rule;
    }

    RuleIndex compile(const Json& schema, const std::string& path) {
        require(++depth_ <= max_schema_depth, "json_schema: {}: nested more than {} deep", path,
                max_schema_depth);
        const RuleIndex rule = rule_of(schema, path);
        --depth_;
        return rule;
    }

    RuleIndex rule_of(const Json& schema, const std::string& path) {
        if (schema.as<bool>() && *schema.as<bool>()) return json_.value;
        const JsonObject& keywords = expect<JsonObject>(schema, path, "a schema");
        if (schema.find("$ref")) {
            check_keywords(keywords, path, {"$ref"}, " beside $ref");
            return reference(expect<std::string>(*schema.find("$ref"), path + "/$ref", "text"),
                             path + "/$ref");
        }
        if (schema.find("anyOf")) return any_of(schema, path);
        if (schema.find("enum") || schema.find("const")) return one_of_values(schema, path);
        if (schema.find("type")) return of_types(schema, path);
        check_keywords(keywords, path, {}, " without a type");
        return json_.value;
    }

    RuleIndex any_of(const Json& schema, const std::string& path) {
        check_keywords(*schema.as<JsonObject>(), path, {"anyOf"}, " beside anyOf");
        const std::string at = path + "/anyOf";
        const JsonArray& options =
            expect<JsonArray>(*schema.find("anyOf"), at, "a list of schemas");
        require(!options.empty(), "json_schema: {}: expected a list of schemas, got []", at);
        std::vector<Sequence> alternatives;
        for (std::size_t i = 0; i < options.size(); ++i)
            alternatives.push_back({compile(options[i], at + "/" + to_text(i))});
        return rules_.add(path, alternatives);
    }

    // enum and const: the texts of the values.
    RuleIndex one_of_values(const Json& schema, const std::string& path) {
        const char* keyword = schema.find("enum") ? "enum" : "const";
        check_keywords(*schema.as<JsonObject>(), path, {keyword, "type"},
                       std::string(" beside ") + keyword);
        const std::string at = path + "/" + keyword;
        const JsonArray values = schema.find("enum") ? expect<JsonArray>(*schema.find("enum"),
                                                                         at, "a list of values")
                                                     : JsonArray{*schema.find("const")};
        require(!values.empty(), "json_schema: {}: expected a list of values, got []", at);
        std::vector<std::string> texts;
        for (const Json& value : values) {
            texts.push_back(json_text(value));
            if (!schema.find("type")) continue;
            const std::vector<std::string> types = types_of(schema, path);
            require(std::any_of(types.begin(), types.end(),
                                [&](const std::string& type) { return has_type(value, type); }),
                    "json_schema: {}: {} is not of the type", at, texts.back().substr(0, 40));
        }
        return add_literals(rules_, at, texts);
    }

    std::vector<std::string> types_of(const Json& schema, const std::string& path) const {
        const Json& type = *schema.find("type");
        const std::string at = path + "/type";
        std::vector<std::string> types;
        for (const Json& name : type.as<JsonArray>() ? *type.as<JsonArray>() : JsonArray{type})
            types.push_back(expect<std::string>(name, at, "the name of a type"));
        require(!types.empty(), "json_schema: {}: expected a type, got []", at);
        for (const std::string& name : types)
            require(keywords_of_types.contains(name), "json_schema: {}: unknown type '{}'", at,
                    name);
        return types;
    }

    RuleIndex of_types(const Json& schema, const std::string& path) {
        const std::vector<std::string> types = types_of(schema, path);
        std::set<std::string> known = {"type"};
        std::string names;
        for (const std::string& type : types) {
            const std::set<std::string>& keywords = keywords_of_types.at(type);
            known.insert(keywords.begin(), keywords.end());
            names += (names.empty() ? "" : ", ") + type;
        }
        check_keywords(*schema.as<JsonObject>(), path, known, " for the type " + names);
        std::vector<Sequence> alternatives;
        for (const std::string& type : types)
            alternatives.push_back({of_type(type, schema, path)});
        return rules_.add(path, alternatives);
    }

    RuleIndex of_type(const std::string& type, const Json& schema, const std::string& path) {
        if (type == "object") return object(schema, path);
        if (type == "array") return array(schema, path);
        if (type == "string") return string(schema, path);
        if (type == "integer") return json_.integer;
        if (type == "number") return json_.number;
        return type == "boolean" ? json_.boolean : json_.null;
    }

    RuleIndex string(const Json& schema, const std::string& path) {
        const auto min = count(schema, "minLength", path),
                   max = count(schema, "maxLength", path);
        if (!min && !max) return json_.string;
        const RuleIndex characters = rules_.repeat(path, json_.character, min.value_or(0), max);
        return rules_.add(path, {{bytes_of("\""), characters, bytes_of("\"")}});
    }

    RuleIndex array(const Json& schema, const std::string& path) {
        const Json* items = schema.find("items");
        const RuleIndex item = items ? compile(*items, path + "/items") : json_.value;
        const auto min = count(schema, "minItems", path), max = count(schema, "maxItems", path);
        require(max.value_or(min.value_or(0)) >= min.value_or(0),
                "json_schema: {}: minItems {} is above maxItems {}", path, min.value_or(0),
                max.value_or(0));
        return add_list(rules_, path, "[]", add_element(rules_, path, json_.space, item),
                        min.value_or(0), max);
    }

    // The names in `required`, each of which must be a property.
    std::set<std::string> required_names(const Json& schema, const std::string& path) const {
        std::set<std::string> names;
        const Json* required = schema.find("required");
        if (!required) return names;
        const std::string at = path + "/required";
        for (const Json& name : expect<JsonArray>(*required, at, "a list of names")) {
            names.insert(expect<std::string>(name, at, "a name"));
            const Json* properties = schema.find("properties");
            require(properties && properties->find(*name.as<std::string>()),
                    "json_schema: {}: there is no property '{}'", at, *name.as<std::string>());
        }
        return names;
    }

    // The properties from one on: `first` if none was written before, `more` after a comma.
    struct PropertyRules {
        RuleIndex first, more;
    };

    // Those rules with one more property before the others. An optional one may be skipped.
    PropertyRules with_property(const PropertyRules& others, const std::string& name,
                                RuleIndex value, bool required, const std::string& path) {
        const Sequence text = joined({literal(json_text({name}) + ":"), {json_.space, value}});
        const ElementRules property =
            add_element(rules_, name, json_.space, rules_.add(name, {text}));
        std::vector<Sequence> if_first = {{property.first, others.more}};
        std::vector<Sequence> if_more = {{property.more, others.more}};
        if (!required) {
            if_first.push_back({others.first});
            if_more.push_back({others.more});
        }
        const RuleIndex first = rules_.add(path, if_first);
        return {first, rules_.add(path, if_more)};
    }

    RuleIndex object(const Json& schema, const std::string& path) {
        if (const Json* additional = schema.find("additionalProperties"))
            require(additional->as<bool>() && !*additional->as<bool>(),
                    "json_schema: {}: only additionalProperties: false is supported", path);
        const std::set<std::string> required = required_names(schema, path);
        const Json* properties = schema.find("properties");
        if (!properties)
            return schema.find("additionalProperties") ? rules_.add(path, {literal("{}")})
                                                       : json_.object;
        const JsonObject& members =
            expect<JsonObject>(*properties, path + "/properties", "an object of schemas");

        // Add the properties from the last to the first.
        const RuleIndex end = rules_.add(path, {Sequence{}});
        PropertyRules all = {end, end};
        for (auto member = members.rbegin(); member != members.rend(); ++member) {
            const auto& [name, value] = *member;
            const RuleIndex rule = compile(value, path + "/properties/" + name);
            all = with_property(all, name, rule, required.contains(name), path);
        }
        return rules_.add(path, {{bytes_of("{"), all.first, bytes_of("}")}});
    }
};

}  // namespace

RuleIndex add_json_schema(GrammarRules& rules, const Json& schema) {
    return SchemaCompiler(rules, schema).compile();
}

Grammar json_schema_grammar(const Json& schema) {
    GrammarRules rules;
    const RuleIndex root = add_json_schema(rules, schema);
    return Grammar(std::move(rules), root);
}

Grammar json_object_grammar() {
    GrammarRules rules;
    const RuleIndex root = add_json_rules(rules).object;
    return Grammar(std::move(rules), root);
}

}  // namespace llm
