#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"

using namespace llm;

namespace {

Grammar schema_grammar(const std::string& schema) { return json_schema_grammar(json(schema)); }

std::string schema_error(const std::string& schema) try {
    schema_grammar(schema);
    return "none";
} catch (const ValueError& error) {
    return error.what();
}

void check_matches(const Grammar& grammar, const std::vector<std::string>& accepted,
                   const std::vector<std::string>& rejected) {
    for (const std::string& text : accepted) CHECK_MESSAGE(matches(grammar, text), text);
    for (const std::string& text : rejected) CHECK_MESSAGE(!matches(grammar, text), text);
}

// A text of the grammar: random bytes, and after 100 of them those that end what is open.
std::string random_text(const Grammar& grammar, RandomJson& random) {
    std::string text;
    GrammarState state = start_state(grammar);
    while (true) {
        std::string bytes, closing;
        const ByteSet allowed = allowed_bytes(grammar, state);
        for (std::size_t byte = 0; byte < 256; ++byte)
            if (allowed[byte]) bytes += static_cast<char>(byte);
        for (const char byte : std::string("\"]}n"))
            if (bytes.find(byte) != bytes.npos) closing += byte;
        if (is_complete(state) && (bytes.empty() || text.size() > 100 || random.below(8) == 0))
            return text;
        // A quote ends a string, but rarely comes first among 250 bytes.
        const bool closes = !closing.empty() && (text.size() > 100 || random.below(4) == 0);
        const std::string& choices = closes ? closing : bytes;
        text += choices[random.below(static_cast<std::uint32_t>(choices.size()))];
        state = advance(grammar, state, static_cast<unsigned char>(text.back()));
    }
}

}  // namespace

TEST_CASE("each type has its JSON texts") {
    check_matches(schema_grammar(R"({"type": "integer"})"),
                  {"0", "-0", "7", "-12", "1234567890123456"},
                  {"", "-", "01", "1.0", "1e2", "12345678901234567", "+1"});
    check_matches(schema_grammar(R"({"type": "number"})"),
                  {"0", "-1.5", "1e5", "2.50E-07", "1e99", "0.000123456789012345678"},
                  {"1.", ".5", "1e", "1e100", "00.1", "NaN"});
    check_matches(schema_grammar(R"({"type": "boolean"})"), {"true", "false"},
                  {"True", "tru", "1"});
    check_matches(schema_grammar(R"({"type": "null"})"), {"null"}, {"nul", "None", ""});
    check_matches(schema_grammar(R"({"type": ["string", "null"]})"), {"null", "\"\""}, {"1"});
    check_matches(schema_grammar("{}"), {"1", "\"a\"", "[]", "{\"a\":[1, {}]}", "null"},
                  {"", "a"});
}

TEST_CASE("strings are valid JSON in valid UTF-8") {
    check_matches(
        schema_grammar(R"({"type": "string"})"),
        {"\"\"", "\"a\"", "\"é語😀\"", R"("\n\"\\\/\u00e9")", R"("\ud83d\ude00")", "\"\x7f\""},
        {"\"", "\"\n\"", "\"\x1f\"", R"("\x")", R"("\u12")", R"("\ud83d")", R"("\ude00")",
         R"("\ud83d\u0041")", "\"\xc0\xaf\"", "\"\xe0\x9f\xbf\"", "\"\xed\xa0\x80\"",
         "\"\xf0\x8f\xbf\xbf\"", "\"\xf4\x90\x80\x80\"", "\"\x80\"", "\"\xc3\"", "\"\xff\""});
}

TEST_CASE("lengths count code points, also those of escapes") {
    check_matches(schema_grammar(R"({"type": "string", "minLength": 2, "maxLength": 3})"),
                  {"\"ab\"", "\"é語😀\"", R"("\n\ud83d\ude00")"},
                  {"\"a\"", "\"é\"", R"("\ud83d\ude00")", "\"abcd\""});
}

TEST_CASE("arrays have their number of items, with one space or none after commas") {
    const std::string items = R"("items": {"type": "integer"})";
    check_matches(schema_grammar(R"({"type": "array", )" + items + "}"),
                  {"[]", "[1]", "[1,2]", "[1, 2,3]"}, {"[", "[,]", "[1,]", "[1,  2]", "[ 1]"});
    for (std::size_t min = 0; min < 4; ++min)
        for (std::size_t max = min; max < 5; ++max) {
            const Grammar grammar =
                schema_grammar(R"({"type": "array", )" + items + R"(, "minItems": )" +
                               to_text(min) + R"(, "maxItems": )" + to_text(max) + "}");
            for (std::size_t n = 0; n < 6; ++n) {
                std::string text = "[";
                for (std::size_t i = 0; i < n; ++i) text += i == 0 ? "1" : ", 1";
                CHECK_MESSAGE(matches(grammar, text + "]") == (min <= n && n <= max), n);
            }
        }
}

TEST_CASE("properties come in the order of the schema, and optional ones may be missing") {
    const std::string properties =
        R"({"type": "object", "properties": {"b": {"const": 1}, "a": {"const": 2},
            "c": {"const": 3}}, "required": )";
    check_matches(
        schema_grammar(properties + R"(["a"]})"),
        {R"({"b":1,"a":2,"c":3})", R"({"b": 1, "a": 2})", R"({"a":2,"c":3})", R"({"a":2})"},
        {"{}", R"({"a":2,"b":1})", R"({"b":1})", R"({"a":2,})", R"({"a":2,"a":2})",
         R"({"a":2,"d":4})", R"({"c":3})"});
    check_matches(schema_grammar(properties + R"([], "additionalProperties": false})"),
                  {"{}", R"({"b":1})", R"({"c":3})", R"({"b":1,"c":3})"}, {"{,}", "{ }"});
    check_matches(schema_grammar(R"({"type": "object", "additionalProperties": false})"),
                  {"{}"}, {R"({"a":1})"});
    check_matches(json_object_grammar(), {"{}", R"({"a": {"b":[1,true]}})"},
                  {"[]", "1", "{1}"});
}

TEST_CASE("a reference may lead to the schema in which it stands") {
    const std::string tree = R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array",
        "items": {"$ref": "#/$defs/tree"}}}})";
    check_matches(schema_grammar(tree), {"[]", "[[], [[]]]"}, {"[1]", "[[]"});
    check_matches(
        schema_grammar(R"({"type": "object", "properties": {"next": {"$ref": "#"}}})"),
        {"{}", R"({"next":{"next":{}}})"}, {R"({"next":1})"});
}

TEST_CASE("300 random schemas: texts of the grammar satisfy them, and their values match") {
    RandomJson random{Generator(11)};
    for (int trial = 0; trial < 300; ++trial) {
        const Json schema = random.schema();
        INFO(json_text(schema));
        const Grammar grammar = json_schema_grammar(schema);
        for (int i = 0; i < 5; ++i) {
            const std::string text = random_text(grammar, random);
            INFO(text);
            REQUIRE(satisfies(json(text), schema, schema));
            const std::string value = json_text(random.value(schema, schema));
            REQUIRE_MESSAGE(matches(grammar, value), value);
        }
    }
}

TEST_CASE("what no grammar enforces is rejected with its path") {
    CHECK(schema_error(R"({"type": "object", "properties": {"age": {"not": {"const": 1}}}})") ==
          "json_schema: #/properties/age: the keyword not is not supported");
    CHECK(schema_error(R"({"type": "array", "uniqueItems": true})") ==
          "json_schema: #/uniqueItems: the keyword is only supported with maxItems 1");
    CHECK(schema_error(R"({"type": "number", "multipleOf": 0.1})") ==
          "json_schema: #/multipleOf: only integers are supported");
    CHECK(schema_error(R"({"type": "string", "pattern": "(?<=a)b"})") ==
          "json_schema: #: pattern: lookbehind is not supported at column 4");
    CHECK(schema_error(R"({"type": "object", "minProperties": 2})") ==
          "json_schema: #: the keyword minProperties is not supported here");
    for (const std::string keyword :
         {R"("if": {}, "then": false)", R"("contains": {})",
          R"("dependentRequired": {"a": []})",
          R"("oneOf": [{"type": "integer"}, {"type": "number"}])"}) {
        CHECK(schema_error("{" + keyword + "}").starts_with("json_schema: #"));
        // In the parameters of a tool that is not strict it is a description.
        CHECK_NOTHROW(json_schema_grammar(json("{" + keyword + "}"), {Unenforced::ignored}));
    }
    check_matches(json_schema_grammar(json(R"({"type": "string", "pattern": "\\bx"})"),
                                      {Unenforced::ignored}),
                  {"\"abc\""}, {"1"});
    CHECK(schema_error(R"({"type": "string", "minlength": 1})") ==
          "json_schema: #: unknown keyword minlength; expected minLength");
}

TEST_CASE("annotations, and keywords that restrict nothing, pass") {
    for (const std::string keywords :
         {R"("title": "T", "description": "d", "default": null, "examples": [1])",
          R"("deprecated": true, "readOnly": true, "x-order": 3, "discriminator": {})",
          R"("contentEncoding": "base64", "format": "color", "$schema": "x", "$id": "y")",
          R"("not": false, "if": {}, "uniqueItems": false, "minItems": 3, "minContains": 1)",
          R"("dependentRequired": {}, "unevaluatedProperties": false, "markdown": {"a": [1]})"})
        CHECK_MESSAGE(schema_error(R"({"type": "integer", )" + keywords + "}") == "none",
                      keywords);
    // The keywords of another type restrict nothing.
    check_matches(schema_grammar(R"({"type": "integer", "maxLength": 0})"), {"12"}, {"\"\""});
}

TEST_CASE("values that a keyword cannot have are rejected with their path") {
    CHECK(schema_error("[]") == "json_schema: #: expected a schema, got []");
    CHECK(schema_error("false") == "json_schema: #: no value is allowed");
    CHECK(schema_error(R"({"type": "text"})") == "json_schema: #/type: unknown type 'text'");
    CHECK(schema_error(R"({"type": 1})") ==
          "json_schema: #/type: expected the name of a type, got 1");
    CHECK(schema_error(R"({"type": []})") == "json_schema: #/type: expected a type, got []");
    CHECK(schema_error(R"({"enum": []})") ==
          "json_schema: #/enum: expected a list of values, got []");
    CHECK(schema_error(R"({"enum": 3})") ==
          "json_schema: #/enum: expected a list of values, got 3");
    CHECK(schema_error(R"({"anyOf": []})") ==
          "json_schema: #/anyOf: expected a list of schemas, got []");
    CHECK(schema_error(R"({"type": "string", "enum": [2, 1]})") ==
          "json_schema: #: the other keywords allow no value of enum or const");
    CHECK(schema_error(R"({"type": "string", "minLength": -1})") ==
          "json_schema: #/minLength: expected at least 0, got -1");
    CHECK(schema_error(R"({"type": "array", "minItems": 2.5})") ==
          "json_schema: #/minItems: expected an integer, got 2.5");
    CHECK(schema_error(R"({"type": "array", "minItems": 3, "maxItems": 2})") ==
          "json_schema: #: minItems 3 is above maxItems 2");
    CHECK(schema_error(R"({"$ref": "#/$defs/x"})") ==
          "json_schema: #/$ref: there is no schema #/$defs/x");
    CHECK(schema_error(R"({"type": "object", "additionalProperties": false,
                           "properties": {}, "required": ["a"]})") ==
          "json_schema: #/properties/a: no value is allowed");
    CHECK(schema_error(R"({"type": "integer", "minimum": "a"})") ==
          "json_schema: #/minimum: expected a number, got \"a\"");
    CHECK(schema_error(R"({"type": "integer", "multipleOf": 0})") ==
          "json_schema: #/multipleOf: expected a number above 0, got 0");
    CHECK(schema_error(R"({"type": "integer", "minimum": 3, "maximum": 2})") ==
          "json_schema: #: no integer is in the range");
}

TEST_CASE("json_schema: integers keep all digits, and 1.0 is an integer") {
    check_matches(schema_grammar(R"({"enum": [18446744073709551615, -9223372036854775809]})"),
                  {"18446744073709551615", "-9223372036854775809"},
                  {"1.8446744073709552e+19", "18446744073709551616"});
    check_matches(schema_grammar(R"({"type": "integer", "enum": [9223372036854775808]})"),
                  {"9223372036854775808"}, {"9.223372036854776e+18"});
    const std::string digits = "123456789012345678901234567890";
    check_matches(schema_grammar(R"({"const": )" + digits + "}"), {digits}, {"1e+29"});
    check_matches(schema_grammar(R"({"type": "integer", "const": 1.0})"), {"1.0"}, {"2"});
    CHECK(schema_error(R"({"type": "integer", "const": 1.5})") ==
          "json_schema: #: the other keywords allow no value of enum or const");
    check_matches(schema_grammar(R"({"type": "string", "maxLength": 1.0})"), {"\"a\""},
                  {"\"aa\""});
}

TEST_CASE("hostile schemas are rejected in time") {
    std::string deep = R"({"type": "null"})";
    for (int i = 0; i < 50; ++i) deep = R"({"type": "array", "items": )" + deep + "}";
    CHECK(schema_error(deep) == "none");
    for (int i = 0; i < 30; ++i) deep = R"({"type": "array", "items": )" + deep + "}";
    CHECK(schema_error(deep).find(" nested more than 64 deep") != std::string::npos);
    CHECK_THROWS_WITH_AS(json(std::string(100000, '[')), "text: nested more than 128 deep",
                         FileError);

    CHECK(schema_error(R"({"type": "array", "minItems": 1000000000})") ==
          "grammar: '#' is repeated 999999999 times, expected at most 262144");
    CHECK(schema_error(R"({"type": "string", "maxLength": 9000000000000000000})")
              .starts_with("grammar: '#' is repeated"));
    // Patterns that grow by repetition, alternatives that must be compared with each other.
    for (const std::string pattern : {"^((a{300}){300}){300}$", "^(.{0,900}a){3}.{0,900}$"})
        CHECK(schema_error(R"({"type": "string", "pattern": ")" + pattern + "\"}")
                  .starts_with("json_schema: #: regex: "));
    std::string numbers = "0", constants = R"({"const": 0})", texts = R"({"const": "0"})";
    for (int i = 1; i < 3000; ++i) {
        numbers += "," + to_text(i);
        constants += R"(,{"const": )" + to_text(i) + "}";
        texts += R"(,{"const": ")" + to_text(i) + "\"}";
    }
    CHECK(schema_error(R"({"oneOf": [)" + constants + "]}") ==
          "json_schema: #/oneOf: too many schemas to compare");
    CHECK(schema_error(R"({"oneOf": [{"anyOf": [)" + constants + R"(]}, {"anyOf": [)" + texts +
                       "]}]}") == "json_schema: #/oneOf: too many schemas to compare");
    CHECK_NOTHROW(
        json_schema_grammar(json(R"({"oneOf": [)" + constants + "]}"), {Unenforced::ignored}));
    CHECK(schema_error(R"({"enum": [)" + numbers + R"(], "allOf": [{"enum": [)" + numbers +
                       "]}]}") == "json_schema: #: too many values to compare");
    CHECK(schema_error(R"({"enum": [)" + numbers + "]}") == "none");
    CHECK(schema_error(R"({"type": "object", "patternProperties": {"^a$": {}
}
, "properties" : {
    "a" : {}
}
})") == "json_schema: #: keys: regex: no string matches");
    CHECK(schema_error(R"({"$ref": "#"})") == "json_schema: #: the schema names itself");
    CHECK(schema_error(R"({"type": "array", "minItems": 1, "items": {"$ref": "#"}})")
              .ends_with("has no finite text"));
    CHECK(schema_error(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})") ==
          "grammar: rule '#/anyOf' is left-recursive");
}
