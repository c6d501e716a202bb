#include "chapters/23_structured_output/schema/json_schema.hpp"

#include <algorithm>

#include "chapters/23_structured_output/schema/schema_compiler.hpp"

namespace llm {
namespace {

constexpr std::size_t max_schema_depth = 64;

}  // namespace

SchemaCompiler::SchemaCompiler(GrammarRules& rules, const Json& root, Unenforced unenforced)
    : rules_(rules), document_(root), unenforced_(unenforced), json_(add_json_rules(rules)) {}

void SchemaCompiler::leave_out(const std::string& path, const std::string& problem) const {
    require(unenforced_ == Unenforced::ignored, "json_schema: {}: {}", path, problem);
}

RuleIndex SchemaCompiler::compile_root(const std::string& type) {
    const Json typed = JsonObject{{"type", type}};
    std::vector<SchemaPart> parts = {{&document_.root(), "#"}};
    if (!type.empty()) parts.push_back({&typed, "#"});
    return compile(parts, "#");
}

// The rule of schemas that must all hold. It is declared first, because a schema may contain
// itself.
RuleIndex SchemaCompiler::compile(std::vector<SchemaPart> parts, const std::string& path) {
    const SchemaParts schema = document_.with_references(std::move(parts));
    if (schema.never) throw Unsatisfiable("json_schema: " + path + ": no value is allowed");
    if (schema.parts.empty()) return json_.value;
    std::vector<std::pair<const Json*, std::set<std::string>>> key;
    for (const SchemaPart& part : schema.parts) key.emplace_back(part.schema, part.done);
    std::sort(key.begin(), key.end());
    if (const auto known = known_.find(key); known != known_.end()) return known->second;

    require(++depth_ <= max_schema_depth, "json_schema: {}: nested more than {} deep", path,
            max_schema_depth);
    const RuleIndex rule = known_[key] = rules_.declare(path);
    try {
        rules_.define(rule, {{rule_of(schema, path)}});
    } catch (const Unsatisfiable&) {
        rules_.define(rule, {Sequence{}});  // nothing refers to it
        known_.erase(key);
        --depth_;
        throw;
    }
    --depth_;
    return rule;
}

RuleIndex SchemaCompiler::rule_of(const SchemaParts& schema, const std::string& path) {
    for (const SchemaPart& part : schema.parts) check_keywords(part, unenforced_);
    for (const char* keyword : {"anyOf", "oneOf"})
        if (const auto rule = choice(schema, keyword)) return *rule;
    if (schema.find("enum") || schema.find("const")) return one_of_values(schema, path);
    std::vector<Sequence> alternatives;
    for (const std::string& type : types_of(schema))
        alternatives.push_back({of_type(type, schema)});
    if (alternatives.empty())
        throw Unsatisfiable("json_schema: " + path + ": no type is allowed");
    return rules_.add(path, alternatives);
}

// The first anyOf or oneOf of the parts: each of its schemas, together with the parts without
// it.
std::optional<RuleIndex> SchemaCompiler::choice(const SchemaParts& schema,
                                                const std::string& keyword) {
    const std::vector<SchemaPart> lists = schema.all(keyword);
    if (lists.empty()) return {};
    const SchemaPart& list = lists.front();
    const JsonArray& options = expect<JsonArray>(list, "a list of schemas");
    require(!options.empty(), "json_schema: {}: expected a list of schemas, got []", list.path);

    std::vector<SchemaPart> others = schema.parts;
    for (SchemaPart& part : others)
        if (part.schema->find(keyword) == list.schema) part.done.insert(keyword);
    if (keyword == "oneOf") check_one_of(list, document_.with_references(others));

    std::vector<Sequence> alternatives;
    std::string problem;
    for (std::size_t i = 0; i < options.size(); ++i) try {
            std::vector<SchemaPart> parts = others;
            parts.push_back({&options[i], list.path + "/" + to_text(i)});
            alternatives.push_back({compile(parts, parts.back().path)});
        } catch (const Unsatisfiable& error) {
            problem = error.what();
        }
    if (alternatives.empty()) throw Unsatisfiable(problem);
    return rules_.add(list.path, alternatives);
}

// Of oneOf, exactly one schema must hold.
void SchemaCompiler::check_one_of(const SchemaPart& list, const SchemaParts& others) {
    const JsonArray& options = *list.schema->as<JsonArray>();
    std::vector<SchemaParts> schemas;
    for (std::size_t i = 0; i < options.size(); ++i) {
        std::vector<SchemaPart> parts = others.parts;
        parts.push_back({&options[i], list.path + "/" + to_text(i)});
        schemas.push_back(document_.with_references(parts));
    }
    for (std::size_t b = 0; b < schemas.size(); ++b)
        for (std::size_t a = 0; a < b; ++a) {
            if (are_disjoint(document_, schemas[a], schemas[b], num_comparisons_left_))
                continue;
            return leave_out(list.path, num_comparisons_left_ == 0
                                            ? "too many schemas to compare"
                                            : "the schemas " + to_text(a) + " and " +
                                                  to_text(b) +
                                                  " may both hold; anyOf allows that");
        }
}

// enum and const: the texts of the values that the other keywords allow.
RuleIndex SchemaCompiler::one_of_values(const SchemaParts& schema, const std::string& path) {
    std::vector<SchemaPart> others = schema.parts;
    for (SchemaPart& part : others) part.done.insert({"enum", "const"});
    const std::set<std::string> restricted = restricted_types({others});
    std::optional<Grammar> grammar;
    if (!restricted.empty()) {
        GrammarRules rules;
        SchemaCompiler compiler(rules, document_.root(), unenforced_);
        const RuleIndex root = compiler.compile(others, path);
        grammar.emplace(std::move(rules), root);
    }
    const auto is_allowed = [&](const Json& value, const std::string& text) {
        const auto is_type = [&](const std::string& type) { return has_type(value, type); };
        return std::none_of(restricted.begin(), restricted.end(), is_type) ||
               is_complete(advance(*grammar, start_state(*grammar), text));
    };
    std::vector<std::string> texts;
    const JsonArray values = *values_of(schema);
    for (const Json& value : values)
        if (const std::string text = json_text(value); is_allowed(value, text))
            texts.push_back(text);
    if (texts.empty())
        throw Unsatisfiable("json_schema: " + path +
                            ": the other keywords allow no value of enum or const");
    return add_literals(rules_, path, texts);
}

RuleIndex SchemaCompiler::of_type(const std::string& type, const SchemaParts& schema) {
    if (type == "object") return object(schema);
    if (type == "array") return array(schema);
    if (type == "string") return string(schema);
    if (type == "integer") return integer(schema);
    if (type == "number") return number(schema);
    return type == "boolean" ? json_.boolean : json_.null;
}

RuleIndex add_json_schema(GrammarRules& rules, const Json& schema,
                          const SchemaOptions& options) {
    return SchemaCompiler(rules, schema, options.unenforced).compile_root(options.type);
}

Grammar json_schema_grammar(const Json& schema, const SchemaOptions& options) {
    GrammarRules rules;
    const RuleIndex root = add_json_schema(rules, schema, options);
    return Grammar(std::move(rules), root);
}

Grammar json_object_grammar() {
    GrammarRules rules;
    const RuleIndex root = add_json_rules(rules).object;
    return Grammar(std::move(rules), root);
}

}  // namespace llm
