#include <algorithm>

#include "chapters/23_structured_output/schema/schema_compiler.hpp"

namespace llm {
namespace {

// The schemas of the elements of an array: the first ones by position, and the others. Drafts
// before 2020-12 have the first ones in "items", and "additionalItems" for the others.
struct ElementSchemas {
    std::vector<std::vector<SchemaPart>> first{};  // by position
    std::vector<SchemaPart> others{};
    bool has_others = false;                // is there a schema for them, which is not false?
    std::optional<std::size_t> max_size{};  // others are not allowed
};

void add_elements(const SchemaPart& part, ElementSchemas& elements) {
    const Json* items = part.schema->find("items");
    const bool is_old = items && items->as<JsonArray>();
    const char* list = is_old ? "items" : "prefixItems";
    const char* rest = is_old ? "additionalItems" : "items";
    std::size_t num_first = 0;
    if (part.schema->find(list)) {
        const SchemaPart first = member(part, list);
        num_first = expect<JsonArray>(first, "a list of schemas").size();
        elements.first.resize(std::max(elements.first.size(), num_first));
        for (std::size_t i = 0; i < num_first; ++i)
            elements.first[i].push_back(
                {&(*first.schema->as<JsonArray>())[i], first.path + "/" + to_text(i)});
    }
    const Json* others = part.schema->find(rest);
    if (!others) return;
    for (std::size_t i = num_first; i < elements.first.size(); ++i)
        elements.first[i].push_back(member(part, rest));
    elements.others.push_back(member(part, rest));
    if (*others == Json(false))
        elements.max_size = std::min(elements.max_size.value_or(num_first), num_first);
    else
        elements.has_others = true;
}

ElementSchemas elements_of(const SchemaParts& schema) {
    ElementSchemas elements;
    for (const SchemaPart& part : schema.parts) add_elements(part, elements);
    return elements;
}

}  // namespace

RuleIndex SchemaCompiler::array(const SchemaParts& schema) {
    const ElementSchemas elements = elements_of(schema);
    const std::string& path = schema.path();
    const std::size_t num_first = elements.first.size();
    const auto given_min = largest_count(schema, "minItems");
    auto max = smallest_count(schema, "maxItems");
    if (elements.max_size) max = std::min(max.value_or(*elements.max_size), *elements.max_size);
    // Elements that no schema describes are not written, and all that one describes are.
    if (num_first > 0 && !elements.has_others)
        max = std::min(max.value_or(num_first), num_first);
    const std::size_t min = given_min.value_or(std::min(num_first, max.value_or(num_first)));
    require(max.value_or(min) >= min, "json_schema: {}: minItems {} is above maxItems {}", path,
            min, max.value_or(0));
    for (const SchemaPart& unique : schema.all("uniqueItems"))
        if (*unique.schema != Json(false) && max.value_or(2) > 1)
            leave_out(unique.path, "the keyword is only supported with maxItems 1");

    // The elements from the last to the first: those without a position, then the others.
    const std::size_t num_placed = std::min(num_first, max.value_or(num_first));
    RuleIndex rest = rules_.add(path, {Sequence{}});
    if (max.value_or(num_placed + 1) > num_placed) {
        const ElementRules element =
            add_element(rules_, path, json_.space, compile(elements.others, path + "/items"));
        const std::size_t min_others = min - std::min(min, num_placed);
        if (max) max = *max - num_placed;
        if (num_placed == 0) return add_list(rules_, path, "[]", element, min_others, max);
        rest = rules_.repeat(path, element.more, min_others, max);
    }
    for (std::size_t i = num_placed; i-- > 0;) {
        const ElementRules element = add_element(
            rules_, path, json_.space, compile(elements.first[i], path + "/" + to_text(i)));
        std::vector<Sequence> alternatives = {{i == 0 ? element.first : element.more, rest}};
        if (i >= min) alternatives.push_back({});
        rest = rules_.add(path, alternatives);
    }
    return rules_.add(path, {{bytes_of("["), rest, bytes_of("]")}});
}

// The rules of properties with one more before the others. An optional one may be skipped.
ElementRules SchemaCompiler::with_property(const ElementRules& others, const std::string& name,
                                           RuleIndex value, bool required) {
    const Sequence text = joined({literal(json_text({name}) + ":"), {json_.space, value}});
    const ElementRules property =
        add_element(rules_, name, json_.space, rules_.add(name, {text}));
    std::vector<Sequence> if_first = {{property.first, others.more}};
    std::vector<Sequence> if_more = {{property.more, others.more}};
    if (!required) {
        if_first.push_back({others.first});
        if_more.push_back({others.more});
    }
    const RuleIndex first = rules_.add(name, if_first);
    return {first, rules_.add(name, if_more)};
}

// Keys that are no declared names: those that a pattern matches, or, without one, that none
// matches.
RuleIndex SchemaCompiler::key_of(const SchemaParts& schema, const std::string* pattern) try {
    RegexPool pool;
    std::vector<RegexPool::Regex> parts;
    if (pattern) parts.push_back(parse_pattern(pool, *pattern));
    for (const SchemaPart& patterns : schema.all("patternProperties"))
        for (const auto& [other, value] : *patterns.schema->as<JsonObject>())
            if (!pattern || other != *pattern)
                parts.push_back(pool.complement(parse_pattern(pool, other)));
    for (const std::string& name : property_names(schema))
        parts.push_back(pool.complement(pool.text(name)));
    for (const SchemaPart& names : schema.all("propertyNames")) {
        const SchemaParts name = document_.with_references({names});
        for (const SchemaPart& part : name.parts) check_keywords(part, unenforced_);
        parts.push_back(regex_of(pool, name));
    }
    const RegexPool::Regex keys = pool.both(parts);
    if (keys == pool.any_text()) return json_.string;
    return pool.add_string(rules_, schema.path(), keys);
} catch (const ValueError& error) {
    throw ValueError("json_schema: " + schema.path() + ": keys: " + error.what());
}

// The alternatives of a member that is not declared: a key and its value.
std::vector<Sequence> SchemaCompiler::members_with(const SchemaParts& schema) {
    std::vector<Sequence> members;
    const auto add = [&](const std::string* pattern, const std::vector<SchemaPart>& values) {
        const RuleIndex key = key_of(schema, pattern);
        members.push_back({key, bytes_of(":"), json_.space,
                           compile(values, schema.path() + "/additionalProperties")});
    };
    for (const SchemaPart& patterns : schema.all("patternProperties"))
        for (const auto& [pattern, value] :
             expect<JsonObject>(patterns, "an object of schemas"))
            add(&pattern, {{&value, patterns.path + "/" + pattern}});

    bool is_open =
        members.empty() && !schema.find("properties") && property_names(schema).empty();
    for (const SchemaPart& others : schema.all("additionalProperties")) {
        if (*others.schema == Json(false)) return members;
        is_open |= others.schema->as<JsonObject>() != nullptr;
    }
    for (const SchemaPart& names : schema.all("propertyNames"))
        if (values_of(document_.with_references({names}))) return members;
    if (is_open) add(nullptr, schema.all("additionalProperties"));
    return members;
}

// Members that are not declared, after those that are.
ElementRules SchemaCompiler::other_members(const SchemaParts& schema) {
    const RuleIndex end = rules_.add(schema.path(), {Sequence{}});
    const std::vector<Sequence> members = members_with(schema);
    if (members.empty()) return {end, end};
    const ElementRules element =
        add_element(rules_, schema.path(), json_.space, rules_.add(schema.path(), members));
    const auto max = smallest_count(schema, "maxProperties");
    const bool is_limited = max && property_names(schema).empty();
    if (is_limited && *max == 0) return {end, end};
    const RuleIndex more = rules_.repeat(schema.path(), element.more, 0,
                                         is_limited ? std::optional(*max - 1) : std::nullopt);
    const bool needs_one = property_names(schema).empty() &&
                           largest_count(schema, "minProperties").value_or(0) > 0;
    std::vector<Sequence> first = {{element.first, more}};
    if (!needs_one) first.push_back({});
    return {rules_.add(schema.path(), first), more};
}

RuleIndex SchemaCompiler::object(const SchemaParts& schema) {
    const std::vector<std::string> names = property_names(schema);
    const std::set<std::string> required = required_names(schema);
    const auto min = largest_count(schema, "minProperties"),
               max = smallest_count(schema, "maxProperties");
    if (min.value_or(0) > std::max<std::size_t>(required.size(), names.empty() ? 1 : 0))
        leave_out(schema.path(), "the keyword minProperties is not supported here");
    if (max && !names.empty() && *max < names.size())
        leave_out(schema.path(), "the keyword maxProperties is not supported here");

    // Add the properties from the last to the first. One that no value satisfies is left out.
    ElementRules all = other_members(schema);
    for (auto name = names.rbegin(); name != names.rend(); ++name) try {
            const RuleIndex value = compile(schema_of_member(schema, *name).parts,
                                            schema.path() + "/properties/" + *name);
            all = with_property(all, *name, value, required.contains(*name));
        } catch (const Unsatisfiable&) {
            if (required.contains(*name)) throw;
        }
    return rules_.add(schema.path(), {{bytes_of("{"), all.first, bytes_of("}")}});
}

}  // namespace llm
