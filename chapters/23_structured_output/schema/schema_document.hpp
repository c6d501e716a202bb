// Chapter 23, schema: a JSON schema and what its references lead to.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/files/json.hpp"

namespace llm {

// A schema inside of a document, and where it stands: "#/properties/age".
struct SchemaPart {
    const Json* schema;
    std::string path;
    std::set<std::string> done{};  // keywords that have been expanded into other parts
};

// Schemas that must all hold: one schema with what it names in $ref and allOf. No parts: any
// value.
struct SchemaParts {
    std::vector<SchemaPart> parts{};
    bool never = false;  // false, or {"not": {}}

    // The first value of a keyword, or all of them; those taken out are left out.
    const Json* find(const std::string& keyword) const;
    std::vector<SchemaPart> all(const std::string& keyword) const;
    const std::string& path() const { return parts.front().path; }
};

// Throws ValueError, which begins with the path, for what cannot be.
class SchemaDocument {
 public:
    explicit SchemaDocument(const Json& root);
    const Json& root() const { return root_; }

    // Adds what the parts refer to with $ref and allOf, each schema once.
    SchemaParts with_references(std::vector<SchemaPart> parts) const;

 private:
    void index(const Json& value, std::string base);
    const Json& resolve(const std::string& reference, const SchemaPart& from) const;

    const Json& root_;
    // URIs of the schemas with an $id or an anchor, and the base URI of each object.
    std::map<std::string, const Json*> schemas_{};
    std::map<const Json*, std::string> base_of_{};
};

// Throws ValueError unless the value has this type; `what` is what was expected.
template <class T>
const T& expect(const SchemaPart& value, const char* what);

// The values of keywords that count (minItems, maxLength): all of the parts, the largest or the
// smallest; none without any. They throw ValueError for what is no integer of at least 0.
std::vector<std::size_t> counts(const SchemaParts& schema, const char* keyword);
std::optional<std::size_t> largest_count(const SchemaParts& schema, const char* keyword);
std::optional<std::size_t> smallest_count(const SchemaParts& schema, const char* keyword);

// A keyword's value, with its path.
SchemaPart member(const SchemaPart& part, const std::string& keyword);

}  // namespace llm
