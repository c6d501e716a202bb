// Chapter 23, schema: grammars of integers and numbers between two bounds.
#pragma once

#include "chapters/23_structured_output/grammar.hpp"

namespace llm {

// The integers in JSON that a schema allows, as decimal texts without a fraction.
struct IntegerRange {
    std::int64_t min = -max_integer, max = max_integer;
    std::int64_t multiple_of = 1;
    static constexpr std::int64_t max_integer = 9'999'999'999'999'999;  // 16 digits

    auto operator<=>(const IntegerRange&) const = default;
};
// Throws ValueError if no integer is in the range, and for a multiple above 1000 of a range
// that has more than 1000 of them.
RuleIndex add_integers(GrammarRules& rules, const std::string& name, const IntegerRange& range);

// Numbers with at most 16 digits before the point and 20 after it, without an exponent.
struct NumberBound {
    double value = 0;
    bool exclusive = false;
};
// Throws ValueError if there is none between the bounds.
RuleIndex add_numbers(GrammarRules& rules, const std::string& name,
                      const std::optional<NumberBound>& min,
                      const std::optional<NumberBound>& max);

}  // namespace llm
