// Patterns and formats of strings, against the regular expressions of the standard library.
#include <regex>

#include "chapters/23_structured_output/schema/regex.hpp"
#include "chapters/23_structured_output/schema/string_formats.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"

using namespace llm;

namespace {

Grammar pattern_grammar(const std::string& pattern) {
    RegexPool pool;
    GrammarRules rules;
    const RuleIndex root = pool.add_string(rules, "s", parse_pattern(pool, pattern));
    return Grammar(std::move(rules), root);
}

bool pattern_matches(const Grammar& grammar, const std::string& text) {
    return matches(grammar, json_text({text}));
}

std::string pattern_error(const std::string& pattern) try {
    pattern_grammar(pattern);
    return "none";
} catch (const ValueError& error) {
    return error.what();
}

}  // namespace

TEST_CASE("patterns find what std::regex finds, in 400 random texts each") {
    RandomJson random{Generator(3)};
    const std::string letters = "aabbc01.-_@ \n\"\\/";
    for (const std::string pattern : {"^a*b$",      "ab|c",
                                      "^(a|b)+$",   "a{2}",
                                      "^a{1,2}b?$", "^[a-c]+$",
                                      "[^ab]",      "^\\d+$",
                                      "\\D",        "^\\w+@\\w+$",
                                      "\\s",        "^\\S*$",
                                      "^(?:ab)*$",  "^(?!a).*b",
                                      "^(?=.*b)a",  "^(?!.*bb)[ab]+$",
                                      "a(?=b)",     "a(?!b)",
                                      "^$",         "",
                                      "b$",         "^.b",
                                      "a.c",        "[.]",
                                      "^a+?b",      "(a(b|c)){1,2}$",
                                      "^\"",        "\\\\",
                                      "/",          "^a|b$",
                                      "[\\w.-]+@",  "a{0}b",
                                      "^[^]*$",     "^(?:(?!ab).)*$"}) {
        if (pattern == "^(?:(?!ab).)*$") {  // a lookahead is repeated
            CHECK(pattern_error(pattern).starts_with("pattern: "));
            continue;
        }
        const Grammar grammar = pattern_grammar(pattern);
        const std::regex expected(pattern == "^[^]*$" ? "^[\\s\\S]*$" : pattern);
        std::size_t num_wrong = 0, num_found = 0;
        for (int i = 0; i < 400; ++i) {
            std::string text;
            for (std::uint32_t n = random.below(7); n > 0; --n)
                text += letters[random.below(std::uint32_t(letters.size()))];
            const bool found = std::regex_search(text, expected);
            num_found += found;
            num_wrong += pattern_matches(grammar, text) != found;
        }
        CHECK_MESSAGE(num_wrong == 0, pattern);
        CHECK_MESSAGE(num_found > 0, pattern);
    }
}

TEST_CASE("patterns: characters above ASCII, control characters and escapes of JSON") {
    CHECK(pattern_matches(pattern_grammar("^.$"), "é"));
    CHECK(pattern_matches(pattern_grammar("^..$"), "語😀"));
    CHECK_FALSE(pattern_matches(pattern_grammar("^..$"), "é"));
    CHECK_FALSE(pattern_matches(pattern_grammar("^[a-z]$"), "é"));
    CHECK(matches(pattern_grammar("^\\x01\\t$"), R"("\u0001\t")"));
    CHECK_FALSE(matches(pattern_grammar("^\\u0061$"), "\"b\""));
    CHECK(matches(pattern_grammar("^\\u0061$"), "\"a\""));
    CHECK(matches(pattern_grammar("^[\\b-\\r]{2}$"), R"("\b\f")"));
}

TEST_CASE("patterns that are wrong or not supported are rejected") {
    for (const std::string pattern :
         {"(", "a)", "[a", "*a", "a{2,1}", "[b-a]", "\\", "(?<=a)b", "(?<!a)b", "\\bword",
          "\\p{L}", "(a)\\1", "[é]", "é", "a^b", "(^a)+", "\\x0", "a{9999}", "(?i)a"})
        CHECK_MESSAGE(pattern_error(pattern) != "none", pattern);
    CHECK(pattern_error("^a$b") == "regex: no string matches");
    CHECK(pattern_error("(" + std::string(100, '(')).find("nested") != std::string::npos);
    CHECK(pattern_error("^(.*a.{14})$").find("more than 4096 states") != std::string::npos);
}

TEST_CASE("formats: valid texts match, others do not") {
    const auto check = [](const std::string& format, const std::vector<std::string>& valid,
                          const std::vector<std::string>& invalid) {
        const Grammar grammar = pattern_grammar(*pattern_of_format(format));
        for (const std::string& text : valid)
            CHECK_MESSAGE(pattern_matches(grammar, text), format << ": " << text);
        for (const std::string& text : invalid)
            CHECK_MESSAGE(!pattern_matches(grammar, text), format << ": " << text);
    };
    check("date", {"2026-11-28", "2024-02-29", "2000-02-29", "1999-12-31"},
          {"2023-02-29", "1900-02-29", "2026-13-01", "2026-04-31", "2026-1-1", "2026-00-10"});
    check("date-time", {"2026-11-28T14:30:35Z", "2026-11-28T23:59:59.123+01:30"},
          {"2026-11-28 14:30:35Z", "2026-11-28T24:00:00Z", "2026-11-28T14:30:35"});
    check("time", {"00:00:00Z"}, {"00:60:00Z", "1:00:00Z"});
    check("uuid", {"123e4567-e89b-42d3-a456-426614174000"},
          {"123e4567-e89b-42d3-c456-426614174000", "123e4567e89b42d3a456426614174000"});
    check("email", {"a@b.cd", "a.b+c@x-y.z1.org"}, {"a@b", ".a@b.cd", "a..b@c.de", "a b@c.de"});
    check("ipv4", {"127.0.0.1", "255.255.255.255"}, {"256.0.0.1", "01.0.0.1", "1.2.3"});
    check("uri", {"https://a.b/c?d=e#f", "ftp://x"}, {"a.b", "https://", "http://a b"});
    check("hostname", {"a", "a-b.c"}, {"-a", "a-", "a..b"});
    CHECK_FALSE(pattern_of_format("color").has_value());
}
