// Bounds of integers and numbers, against comparisons of the numbers themselves.
#include "chapters/23_structured_output/schema/number_rules.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"

using namespace llm;

namespace {

Grammar integers(const IntegerRange& range) {
    GrammarRules rules;
    const RuleIndex root = add_integers(rules, "n", range);
    return Grammar(std::move(rules), root);
}

Grammar numbers(const std::optional<NumberBound>& min, const std::optional<NumberBound>& max) {
    GrammarRules rules;
    const RuleIndex root = add_numbers(rules, "x", min, max);
    return Grammar(std::move(rules), root);
}

IntegerRange range(std::int64_t min, std::int64_t max, std::int64_t multiple_of = 1) {
    return {min, max, multiple_of};
}

}  // namespace

TEST_CASE("integers between two bounds: all of -1300 to 1300, for many bounds") {
    const std::vector<std::int64_t> bounds = {-1234, -1000, -999, -100, -99, -10, -9,
                                              -1,    0,     1,    7,    9,   10,  99,
                                              100,   101,   999,  1000, 1207};
    for (const std::int64_t multiple_of : {1, 3})
        for (const std::int64_t min : bounds)
            for (const std::int64_t max : bounds) {
                // Few integers become texts; with more than 1000 the digits are compared.
                if (max - min < 2) continue;
                const Grammar grammar = integers(range(min, max, multiple_of));
                std::size_t num_wrong = 0;
                for (std::int64_t n = -1300; n <= 1300; n += 7 - 6 * (max - min > 1000))
                    num_wrong += matches(grammar, to_text(n)) !=
                                 (min <= n && n <= max && n % multiple_of == 0);
                CHECK_MESSAGE(num_wrong == 0, min << " to " << max);
                for (const std::string text : {"-0", "00", "007", "+1", "1.0", "", "-"})
                    CHECK_FALSE(matches(grammar, text));
            }
}

TEST_CASE("integers of 16 digits: bounds at the ends of the range") {
    const std::int64_t safe = 9'007'199'254'740'991;  // zod's bounds of int()
    const Grammar grammar = integers(range(-safe, safe));
    for (const std::string text : {"0", "5", "123456789012345", "9007199254740991",
                                   "-9007199254740991", "8999999999999999"})
        CHECK_MESSAGE(matches(grammar, text), text);
    for (const std::string text : {"9007199254740992", "-9007199254740992", "9100000000000000",
                                   "10000000000000000", "01"})
        CHECK_FALSE(matches(grammar, text));
    CHECK(matches(integers(range(5000, IntegerRange::max_integer)), "9999999999999999"));
    CHECK_FALSE(matches(integers(range(5000, IntegerRange::max_integer)), "4999"));
    CHECK(matches(integers(range(-IntegerRange::max_integer, IntegerRange::max_integer, 7)),
                  "9999999999999998") == (9'999'999'999'999'998 % 7 == 0));
    CHECK_THROWS_WITH_AS(integers(range(3, 2)), "json_schema: n: no integer is in the range",
                         ValueError);
    CHECK_THROWS_WITH_AS(integers(range(11, 19, 10)),
                         "json_schema: n: no integer is in the range", ValueError);
    CHECK_THROWS_AS(integers(range(0, 100'000'000, 1001)), ValueError);
    CHECK(matches(integers(range(0, 100'000, 1001)), "2002"));
}

TEST_CASE("numbers between two bounds: a grid of decimals, for many bounds") {
    const std::vector<double> values = {-12.5, -3, -2.75, -0.5, -0.05, 0,  0.05,
                                        0.1,   1,  1.25,  2,    9.99,  10, 12.5};
    for (const double low : values)
        for (const double high : values)
            for (const bool exclusive : {false, true}) {
                if (low > high || (low == high && exclusive)) continue;
                const Grammar grammar =
                    numbers(NumberBound{low, exclusive}, NumberBound{high, exclusive});
                std::size_t num_wrong = 0;
                for (int hundredths = -1310; hundredths <= 1310; hundredths += 5) {
                    if (hundredths == 0 && low < 0) continue;  // "-0.00" is not written
                    const double x = hundredths / 100.0;
                    const int whole = std::abs(hundredths) / 100,
                              rest = std::abs(hundredths) % 100;
                    const std::string text = (hundredths < 0 ? "-" : "") + to_text(whole) +
                                             "." + to_text(rest / 10) + to_text(rest % 10);
                    const bool inside = exclusive ? low < x && x < high : low <= x && x <= high;
                    num_wrong += matches(grammar, text) != inside;
                }
                CHECK_MESSAGE(num_wrong == 0, low << " to " << high << " " << exclusive);
            }
}

TEST_CASE("numbers: the bounds themselves, one bound, and no bound") {
    const Grammar closed = numbers(NumberBound{0.25, false}, NumberBound{1.5, false});
    for (const std::string text : {"0.25", "1.5", "1", "1.0", "0.250001", "1.49999", "0.3"})
        CHECK_MESSAGE(matches(closed, text), text);
    for (const std::string text : {"0.2499", "1.51", "1.500001", "0", "2", "-1", "1e0", "1."})
        CHECK_FALSE(matches(closed, text));
    const Grammar open = numbers(NumberBound{0.25, true}, NumberBound{1.5, true});
    for (const std::string text : {"0.25", "0.250", "1.5", "1.50"})
        CHECK_FALSE(matches(open, text));
    CHECK(matches(open, "0.2500001"));
    CHECK(matches(open, "1.4999999"));
    const Grammar positive = numbers(NumberBound{0, true}, {});
    for (const std::string text : {"0.001", "5", "9999999999999999.5"})
        CHECK_MESSAGE(matches(positive, text), text);
    for (const std::string text : {"0", "0.0", "-1", "10000000000000000"})
        CHECK_FALSE(matches(positive, text));
    const Grammar negative = numbers(NumberBound{-1, false}, NumberBound{0, true});
    CHECK(matches(negative, "-0.5"));
    for (const std::string text : {"-0", "-0.0", "0", "-1.5"})
        CHECK_FALSE(matches(negative, text));
    const Grammar small = numbers(NumberBound{1e-7, false}, NumberBound{1e-6, false});
    CHECK(matches(small, "0.0000005"));
    CHECK_FALSE(matches(small, "0.00000005"));
    const Grammar large = numbers(NumberBound{-1e30, false}, NumberBound{-1.5e15, false});
    CHECK(matches(large, "-1500000000000000"));
    CHECK(matches(large, "-1500000000000000.25"));
    CHECK_FALSE(matches(large, "-1499999999999999.9"));
    CHECK_THROWS_AS(numbers(NumberBound{1, true}, NumberBound{1, true}), ValueError);
    CHECK_THROWS_AS(numbers(NumberBound{2, false}, NumberBound{1, false}), ValueError);
}
