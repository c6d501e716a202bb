// Chapter 23, schema: the steps of add_json_schema.
#pragma once

#include "chapters/23_structured_output/json_rules.hpp"
#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "chapters/23_structured_output/schema/number_rules.hpp"
#include "chapters/23_structured_output/schema/regex.hpp"
#include "chapters/23_structured_output/schema/schema_document.hpp"

namespace llm {

// No value satisfies the schema.
struct Unsatisfiable : ValueError {
    using ValueError::ValueError;
};

// Types of JSON Schema: "number" includes the integers.
using TypeNames = std::set<std::string>;
TypeNames types_of(const SchemaParts& schema);
bool has_type(const Json& value, const std::string& type);
TypeNames restricted_types(const SchemaParts& schema);  // of which there is a keyword
// The values that enum and const leave, of the types of the schema; none without both.
std::optional<JsonArray> values_of(const SchemaParts& schema);

// Throws ValueError for keywords that are no keywords ("minlength"), and, if it must be
// enforced, for those that no grammar enforces.
void check_keywords(const SchemaPart& schema, Unenforced unenforced);

// Can no text that is written for one schema satisfy the other one, and the reverse? Takes the
// comparisons of schemas that it needs from those that are left; without any the answer is no.
bool are_disjoint(const SchemaDocument& document, const SchemaParts& a, const SchemaParts& b,
                  std::size_t& num_left);

// The schemas that a member of an object must satisfy; `is_declared`: properties or
// patternProperties name it.
struct MemberSchema {
    std::vector<SchemaPart> parts{};
    bool is_declared = false;
};
MemberSchema schema_of_member(const SchemaParts& object, const std::string& name);
std::vector<std::string> property_names(const SchemaParts& object);  // in their order
std::set<std::string> required_names(const SchemaParts& object);

// Adds the rules of a schema, and of those inside, each one once.
class SchemaCompiler {
 public:
    SchemaCompiler(GrammarRules& rules, const Json& root, Unenforced unenforced);
    RuleIndex compile_root(const std::string& type);

 private:
    RuleIndex compile(std::vector<SchemaPart> parts, const std::string& path);
    RuleIndex rule_of(const SchemaParts& schema, const std::string& path);
    std::optional<RuleIndex> choice(const SchemaParts& schema, const std::string& keyword);
    void check_one_of(const SchemaPart& list, const SchemaParts& others);
    RuleIndex one_of_values(const SchemaParts& schema, const std::string& path);
    RuleIndex of_type(const std::string& type, const SchemaParts& schema);

    RuleIndex string(const SchemaParts& schema);
    RegexPool::Regex regex_of(RegexPool& pool, const SchemaParts& schema);
    RuleIndex integer(const SchemaParts& schema);
    RuleIndex number(const SchemaParts& schema);

    RuleIndex array(const SchemaParts& schema);
    RuleIndex object(const SchemaParts& schema);
    // The properties from one on: `first` if none was written before, `more` after a comma.
    ElementRules with_property(const ElementRules& others, const std::string& name,
                               RuleIndex value, bool required);
    ElementRules other_members(const SchemaParts& schema);
    std::vector<Sequence> members_with(const SchemaParts& schema);
    RuleIndex key_of(const SchemaParts& schema, const std::string* pattern);

    // Throws if it must be enforced.
    void leave_out(const std::string& path, const std::string& problem) const;

    GrammarRules& rules_;
    SchemaDocument document_;
    Unenforced unenforced_;
    JsonRules json_;
    std::map<std::vector<std::pair<const Json*, std::set<std::string>>>, RuleIndex> known_{};
    std::map<IntegerRange, RuleIndex> integers_{};
    std::size_t depth_ = 0, num_comparisons_left_ = 100'000;  // of schemas, for oneOf
};

}  // namespace llm
