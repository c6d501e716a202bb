// Chapter 21, constrained: from a JSON schema to a grammar of its JSON texts.
#pragma once

#include "chapters/21_serving/constrained/grammar.hpp"
#include "common/files/json.hpp"

namespace llm {

// The rules of a text that is valid JSON (RFC 8259) and satisfies a schema; returns the rule of
// the whole text. Properties come in the order of the schema, without spaces but for a single
// one that may stand after ":" and ",". Implemented:
//   type          object, array, string, integer, number, boolean, null, or a list of them
//   properties, required, additionalProperties: false (other members are never written, also
//                 without it; an object without properties may have any)
//   items, minItems, maxItems, minLength, maxLength (in code points)
//   enum, const   also with a type, which all values must have
//   anyOf, $ref   to "#" or to "#/$defs/NAME"; $defs of the root
//   title, description, default, examples, $comment, $schema, which restrict nothing
// Throws ValueError with the path of the schema ("#/properties/age") for any other keyword, and
// for a value that a keyword cannot have. Integers have at most 16 digits, numbers 21 decimals
// and exponents of 2 digits, so that each is finite in double precision, and ends.
// Source: JSON Schema 2020-12; llama.cpp, json_schema_to_grammar.py.
RuleIndex add_json_schema(GrammarRules& rules, const Json& schema);
Grammar json_schema_grammar(const Json& schema);

// The grammar of any JSON object (response_format "json_object").
Grammar json_object_grammar();

}  // namespace llm
