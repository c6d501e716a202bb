// Schemas as programs write them: pydantic, zod, and all drafts of JSON Schema.
#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"

using namespace llm;

namespace {

void check_schema(const std::string& schema, const std::vector<std::string>& accepted,
                  const std::vector<std::string>& rejected) {
    INFO(schema);
    const Grammar grammar = json_schema_grammar(json(schema));
    for (const std::string& text : accepted) CHECK_MESSAGE(matches(grammar, text), text);
    for (const std::string& text : rejected) CHECK_MESSAGE(!matches(grammar, text), text);
}

std::string error(const std::string& schema) try {
    json_schema_grammar(json(schema));
    return "none";
} catch (const ValueError& error) {
    return error.what();
}

}  // namespace

TEST_CASE("schema: bounds of integers and numbers, in the spellings of all drafts") {
    check_schema(R"({"type": "integer", "minimum": -2, "maximum": 10})", {"-2", "0", "10"},
                 {"-3", "11", "1.0", "-0"});
    check_schema(R"({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3})",
                 {"1", "2"}, {"0", "3"});
    check_schema(R"({"type": "integer", "minimum": 0, "exclusiveMinimum": true})", {"1"},
                 {"0"});
    check_schema(R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"},
                 {"0", "3"});
    CHECK(error(R"({"type": "integer", "minimum": 1e300})") ==
          "json_schema: #: no integer is in the range");
    check_schema(R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})", {"0", "0.99"},
                 {"1", "-0.1"});
    check_schema(R"({"type": "integer", "exclusiveMinimum": 0.5, "maximum": 2})", {"1", "2"},
                 {"0", "3"});
    check_schema(R"({"type": "integer", "minimum": 1, "exclusiveMinimum": 1, "maximum": 3,
                     "exclusiveMaximum": 3})",
                 {"2"}, {"1", "3"});
    check_schema(R"({"type": ["integer", "number"]})", {"1", "1.5"}, {"true"});
    check_schema(R"({"type": "integer", "multipleOf": 2, "allOf": [{"multipleOf": 3}]})",
                 {"6", "-12"}, {"2", "3"});
    check_schema(R"({"type": "integer", "multipleOf": 5, "minimum": 1})", {"5", "100"},
                 {"0", "3"});
    check_schema(R"({"type": "number", "multipleOf": 2})", {"4"}, {"3", "2.5"});
    check_schema(R"({"allOf": [{"type": "integer", "minimum": 2}, {"minimum": 4},
                               {"type": "number", "maximum": 5}]})",
                 {"4", "5"}, {"3", "6", "4.5"});
}

TEST_CASE("schema: additionalProperties as a schema, and keys that are taken") {
    check_schema(R"({"type": "object", "additionalProperties": {"type": "integer"}})",
                 {"{}", R"({"a":1})", R"({"a": 1, "é":2})"}, {R"({"a":"b"})", "[]"});
    check_schema(R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"],
                     "additionalProperties": {"type": "integer"}})",
                 {R"({"a":null})", R"({"a":null,"b":1})", R"({"a":null, "aa":1})"},
                 {R"({"a":null,"a":1})", R"({"b":1})", R"({"a":null,"\u0061":1})"});
    check_schema(R"({"type": "object", "properties": {"é": {"const": 1}}, "required": ["é"],
                     "additionalProperties": {"const": 2}})",
                 {R"({"é":1})", R"({"é":1,"e":2})"}, {R"({"é":1,"é":2})"});
    for (const std::string open : {"true", "{}"})
        check_schema(R"({"type": "object", "additionalProperties": )" + open + "}",
                     {"{}", R"({"a":[1]})"}, {"1"});
    check_schema(R"({"type": "object", "properties": {"a": {"type": "integer"}},
                     "required": ["a"], "additionalProperties": true})",
                 {R"({"a":5})"}, {R"({"a":5,"b":1})", "{}"});
    check_schema(R"({"type": "object", "properties": {}})", {"{}"}, {R"({"a":1})"});
    check_schema(R"({"type": "object", "maxProperties": 1, "minProperties": 1,
                     "additionalProperties": {"const": 1}})",
                 {R"({"a":1})"}, {"{}", R"({"a":1,"b":1})"});
    check_schema(R"({"type": "object", "maxProperties": 0})", {"{}"}, {R"({"a":1})"});
    check_schema(R"({"type": "object", "required": ["b"], "properties": {"a": {"const": 1}},
                     "additionalProperties": {"const": 2}})",
                 {R"({"a":1,"b":2})", R"({"b":2,"c":2})"}, {R"({"a":1})", R"({"b":1})"});
}

TEST_CASE("schema: patternProperties and propertyNames") {
    check_schema(R"({"type": "object", "additionalProperties": false,
                     "patternProperties": {"^n_": {"type": "integer"}, "^s_": {"const": "x"}}})",
                 {"{}", R"({"n_a":1})", R"({"s_":"x","n_":2})"},
                 {R"({"n_a":"x"})", R"({"a":1})", R"({"s_a":1})"});
    check_schema(R"({"type": "object", "propertyNames": {"type": "string"},
                     "additionalProperties": {"type": "number"}})",
                 {R"({"a":1.5})"}, {R"({"a":null})"});
    check_schema(R"({"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}})",
                 {R"({"ab":null})"}, {R"({"abc":1})"});
    check_schema(R"({"type": "object", "propertyNames": {"type": "string", "maxLength": 2},
                     "additionalProperties": {"const": 1}})",
                 {"{}", R"({"ab":1,"":1})"}, {R"({"abc":1})"});
    check_schema(R"({"type": "object", "propertyNames": {"enum": ["a", "b"]},
                     "additionalProperties": {"const": 1}, "required": ["a"]})",
                 {R"({"a":1})", R"({"a":1,"b":1})"}, {R"({"b":1})", R"({"a":1,"c":1})"});
    // A key that two patterns match is not written.
    check_schema(R"({"type": "object", "patternProperties": {"^a": {"const": 1},
                                                             "b$": {"const": 2}}})",
                 {R"({"a":1,"b":2})"}, {R"({"ab":1})", R"({"ab":2})", R"({"c":1})"});
    // A property that a pattern matches must satisfy both.
    check_schema(R"({"type": "object", "properties": {"n_a": {"type": "number"}},
                     "patternProperties": {"^n_": {"minimum": 5}}, "required": ["n_a"]})",
                 {R"({"n_a":5.5})"}, {R"({"n_a":4})"});
}

TEST_CASE("schema: tuples in the spellings of all drafts") {
    for (const std::string tuple :
         {R"("prefixItems": [{"type": "integer"}, {"type": "string"}], "items": )",
          R"("items": [{"type": "integer"}, {"type": "string"}], "additionalItems": )"}) {
        check_schema(R"({"type": "array", )" + tuple + "false}", {"[1,\"a\"]"},
                     {"[1]", "[\"a\",1]", "[1,\"a\",1]"});
        check_schema(R"({"type": "array", )" + tuple + R"({"type": "null"}, "maxItems": 3})",
                     {"[1,\"a\"]", "[1,\"a\", null]"}, {"[1,\"a\",1]", "[1,\"a\",null,null]"});
        check_schema(R"({"type": "array", )" + tuple + R"(false, "minItems": 0})",
                     {"[]", "[1]", "[1,\"a\"]"}, {"[\"a\"]"});
    }
    check_schema(R"({"type": "array", "minItems": 2, "maxItems": 2,
                     "items": [{"type": "integer"}, {"type": "string"}]})",
                 {"[1,\"a\"]"}, {"[1]", "[1,\"a\",2]"});
    check_schema(R"({"type": "array", "items": false})", {"[]"}, {"[1]"});
    check_schema(R"({"type": "array", "prefixItems": [{"type": "integer"}]})", {"[1]"},
                 {"[]", "[1,2]"});
    check_schema(R"({"type": "array", "items": {"const": 1}, "uniqueItems": false})", {"[1,1]"},
                 {"[2]"});
    check_schema(R"({"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 1,
                     "uniqueItems": true})",
                 {"[1]"}, {"[]", "[1,1]"});
}

TEST_CASE("schema: oneOf, if no text can satisfy two of its schemas") {
    check_schema(R"({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]})",
                 {"\"a\"", "1", "null"}, {"1.5", "true"});
    const std::string kinds =
        R"({"type": "object", "properties": {"k": {"const": "x"}, "v": {"type": "number"}},
            "required": ["k", "v"]},
           {"type": "object", "properties": {"k": {"enum": ["y", "z"]}, "w": {"type": "null"}},
            "required": ["k"]})";
    check_schema(R"({"oneOf": [)" + kinds + R"(], "discriminator": {"propertyName": "k"}})",
                 {R"({"k":"x","v":1})", R"({"k":"z"})", R"({"k":"y","w":null})"},
                 {R"({"k":"x"})", R"({"k":"x","w":null})", R"({"k":"q"})"});
    // A member that only one has.
    check_schema(R"({"oneOf": [
                     {"type": "object", "properties": {"a": {}}, "required": ["a"]},
                     {"type": "object", "properties": {"b": {}}, "required": ["b"]}]})",
                 {R"({"a":1})", R"({"b":1})"}, {"{}"});
    std::string deep = R"({"type": "integer"})";
    for (int i = 0; i < 6; ++i)
        deep = R"({"type": "object", "properties": {"a": )" + deep + R"(}, "required": ["a"]})";
    for (const std::string& overlapping : std::vector<std::string>{
             R"({"type": "integer"}, {"type": "number"})",
             R"({"enum": [1, 2]}, {"enum": [2, 3]})", R"({"type": "string"}, {"const": "a"})",
             R"({"type": "string"}, {"minimum": 3})",
             R"({"type": ["object", "null"], "properties": {"a": {}}, "required": ["a"]},
             {"type": ["object", "null"], "properties": {"b": {}}, "required": ["b"]})",
             deep + ", " + deep, R"({"type": "object"}, {"required": ["a"]})",
             R"({"type": "object", "properties": {"a": {}}},
             {"type": "object", "properties": {"b": {}}})",
             R"({"type": "string", "maxLength": 3}, {"type": "string", "minLength": 3})"})
        CHECK(error(R"({"oneOf": [)" + overlapping + "]}") ==
              "json_schema: #/oneOf: the schemas 0 and 1 may both hold; anyOf allows that");
    check_schema(R"({"oneOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]},
                               {"type": "integer"}]})",
                 {"null", "3"}, {"true"});
}

TEST_CASE("schema: allOf, and keywords beside $ref and anyOf, must all hold") {
    const std::string named = R"({"$defs": {"name": {"type": "string", "maxLength": 3}}, )";
    check_schema(named + R"("allOf": [{"$ref": "#/$defs/name"}], "title": "t"})", {"\"abc\""},
                 {"\"abcd\"", "1"});
    check_schema(named + R"("$ref": "#/$defs/name", "minLength": 2})", {"\"ab\""},
                 {"\"a\"", "\"abcd\""});
    check_schema(R"({"allOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"minimum": 3}, "b": {"const": 1}},
         "required": ["b"]}]})",
                 {R"({"a":3,"b":1})"}, {R"({"a":2,"b":1})", R"({"a":3})"});
    // What the other schema declares, additionalProperties: false of this one forbids.
    check_schema(R"({"allOf": [
        {"type": "object", "properties": {"a": {}}, "additionalProperties": false},
        {"type": "object", "properties": {"a": {"const": 1}, "b": {}}}]})",
                 {"{}", R"({"a":1})"}, {R"({"a":1,"b":2})", R"({"b":1})"});
    check_schema(R"({"type": "object", "properties": {"k": {"type": "string"}},
                     "anyOf": [{"required": ["k"]}, {"properties": {"n": {"const": 1}},
                                                     "required": ["n"]}]})",
                 {R"({"k":"a"})", R"({"k":"a","n":1})", R"({"n":1})"}, {"{}"});
    check_schema(R"({"type": ["string", "null"], "anyOf": [{"type": "integer"},
                                                           {"maxLength": 1}]})",
                 {"\"a\""}, {"1", "\"ab\""});
    CHECK(error(R"({"allOf": [{"type": "string"}, {"type": "integer"}]})") ==
          "json_schema: #: no type is allowed");
}

TEST_CASE("schema: every reference inside the document") {
    const auto check = [](const std::string& reference, const std::string& more) {
        check_schema(
            R"({"type": "array", "items": {"$ref": ")" + reference + "\"}, " + more + "}",
            {"[1]", "[]"}, {"[2]", "[null]"});
    };
    check("#/definitions/a", R"("definitions": {"a": {"const": 1}})");
    check("#/$defs/a~1b~0c%25", R"("$defs": {"a/b~c%": {"const": 1}})");
    check("#/anyOf/0/x/1", R"("anyOf": [{"x": [0, {"const": 1}]}])");
    check("#one", R"("$defs": {"a": {"$anchor": "one", "const": 1}})");
    check("#one", R"("$defs": {"a": {"$id": "#one", "const": 1}})");
    check("#/$defs/", R"("$defs": {"": {"const": 1}})");
    const std::string id = R"("$id": "https://x.y/a/root.json", "$defs": {"one": )";
    check("root.json#/$defs/one", id + R"({"const": 1}})");
    check("https://x.y/a/root.json#/$defs/one", id + R"({"const": 1}})");
    check("https://x.y/a/d/e:f", id + R"({"$id": "d/e:f", "const": 1}})");
    check("one.json", id + R"({"$id": "one.json", "const": 1}})");
    check("/a/one.json#/$defs/b",
          id + R"({"$id": "one.json", "$defs": {"b": {"const": 1}}, "const": 2}})");
    check("one.json#b",
          id + R"({"$id": "one.json", "$defs": {"c": {"$anchor": "b", "const": 1}}}})");
    check_schema(R"({"type": "object", "properties": {"a": {"const": 1},
                     "b": {"$ref": "#/properties/a"}}, "required": ["b"]})",
                 {R"({"b":1})"}, {R"({"b":2})"});
    check_schema(R"({"$dynamicAnchor": "node", "type": "object", "properties": {
                     "next": {"$dynamicRef": "#node"}}})",
                 {R"({"next":{"next":{}}})"}, {R"({"next":1})"});
    // A schema inside has references of its own.
    check_schema(R"({"$ref": "in.json", "$defs": {"a": {"const": 2}, "in": {"$id": "in.json",
                     "$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}}})",
                 {"1"}, {"2"});
    for (const std::string missing :
         {"#/$defs/x", "#x", "other.json", "http://x.y/z", "#/type/0", "#/$defs"})
        CHECK(error(R"({"$ref": ")" + missing + "\"}") ==
              "json_schema: #/$ref: there is no schema " + missing);
    // A value is no schema, whatever its members are called.
    CHECK(error(R"({"$ref": "x.json", "$defs": {"a": {"const": {"$id": "x.json"}}}})") ==
          "json_schema: #/$ref: there is no schema x.json");
    CHECK(error(R"({"allOf": [{"$ref": "#"}]})") == "json_schema: #: the schema names itself");
}

TEST_CASE("schema: enum and const beside other keywords, nullable, and no type") {
    check_schema(R"({"type": "string", "enum": ["a", "abc", 1]})", {"\"a\"", "\"abc\""}, {"1"});
    check_schema(R"({"enum": ["a", "abc", 7], "maxLength": 1})", {"\"a\"", "7"}, {"\"abc\""});
    check_schema(R"({"enum": [1, 2, 3], "const": 2})", {"2"}, {"1"});
    check_schema(R"({"enum": [1, 5, 20, "a"], "minimum": 3, "multipleOf": 10})",
                 {"20", "\"a\""}, {"1", "5"});
    check_schema(R"({"type": "integer", "nullable": true})", {"1", "null"}, {"\"\""});
    check_schema(R"({"type": ["object", "null"], "properties": {"a": {"const": 1}}})",
                 {"null", R"({"a":1})"}, {"[]"});
    check_schema(R"({"minLength": 2})", {"\"ab\""}, {"\"a\"", "1"});
    check_schema(R"({"properties": {"a": {"const": 1}}})", {"{}", R"({"a":1})"}, {"1"});
    check_schema(R"({"type": "object", "properties": {"a": false, "b": {"not": {}},
                                                      "c": {"const": 1}}})",
                 {"{}", R"({"c":1})"}, {R"({"a":1})", R"({"b":1})"});
    check_schema(R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/never"},
                     "b": {"$ref": "#/$defs/never"}, "c": {"const": 1}},
                     "$defs": {"never": {"allOf": [{"type": "string"}, {"type": "null"}]}}})",
                 {"{}", R"({"c":1})"}, {R"({"a":})", R"({"b":})"});
    check_schema(R"({"type": "object", "properties": {"a": {"const": 1, "required": true}}})",
                 {R"({"a":1})"}, {"{}"});
}

TEST_CASE("schema: pattern, format and lengths together") {
    check_schema(R"({"type": "string", "pattern": "^a+$", "minLength": 2, "maxLength": 3})",
                 {"\"aa\"", "\"aaa\""}, {"\"a\"", "\"aaaa\"", "\"ab\""});
    check_schema(R"({"type": "string", "format": "date", "pattern": "^2026"})",
                 {"\"2026-01-31\""}, {"\"2025-01-31\"", "\"2026-1-1\""});
    // Lengths that are larger than the automaton: none above maxLength.
    check_schema(R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
                 {"\"http://a.b/c\""}, {"\"\"", "\"a\""});
    check_schema(R"({"type": "string", "pattern": "^a*$", "maxLength": 1500})",
                 {"\"" + std::string(1200, 'a') + "\""},
                 {"\"" + std::string(1501, 'a') + "\""});
    check_schema(R"({"type": "string", "format": "color"})", {"\"x\""}, {"1"});
    CHECK(error(R"({"type": "string", "pattern": "^a$", "minLength": 2})") ==
          "json_schema: #: regex: no string matches");
}
