// Chapter 23, schema: from a JSON schema to a grammar of its JSON texts.
#pragma once

#include "chapters/23_structured_output/grammar.hpp"
#include "common/files/json.hpp"

namespace llm {

// A keyword that no grammar enforces is an error, or is ignored like a description.
enum class Unenforced { rejected, ignored };
struct SchemaOptions {
    Unenforced unenforced = Unenforced::rejected;
    std::string type{};  // of the whole value; empty: any
};

// The rules of a text that is valid JSON (RFC 8259) and satisfies a schema; returns the rule of
// the whole text. Properties come in the order of the schema, without spaces but for a single
// one that may stand after ":" and ",". Implemented, of JSON Schema 2020-12 and of drafts 4 to
// 7:
//   type (also a list), nullable, enum, const, anyOf, allOf, $ref inside of the document
//   oneOf         if no text of one alternative can satisfy another one
//   properties, required, additionalProperties, patternProperties, propertyNames; members that
//                 are not declared are written only if one of the last three has their schema
//   prefixItems, items, additionalItems, minItems, maxItems
//   minLength, maxLength (in code points), pattern, and the formats of string_formats.hpp
//   minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf of integers
// not, if, contains, uniqueItems, minProperties, maxProperties, dependent... and unevaluated...
// cannot be enforced, but for values that restrict nothing. All other keywords are annotations.
// A schema without a type has that of its keywords ("minLength": string). Integers have at most
// 16 digits, numbers 21 decimals and exponents of 2 digits, so that each is finite in double
// precision, and ends.
//
// Throws ValueError with the path of the schema ("#/properties/age").
// Source: JSON Schema 2020-12; llama.cpp, json_schema_to_grammar.py.
RuleIndex add_json_schema(GrammarRules& rules, const Json& schema,
                          const SchemaOptions& options = {});
Grammar json_schema_grammar(const Json& schema, const SchemaOptions& options = {});

// The grammar of any JSON object (response_format "json_object").
Grammar json_object_grammar();

}  // namespace llm
