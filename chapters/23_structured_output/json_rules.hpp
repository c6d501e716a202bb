// Chapter 23, file 2 of 7: the grammar of JSON: strings, numbers and values of any type.
#pragma once

#include "chapters/23_structured_output/grammar.hpp"

namespace llm {

// The rules that all schemas share. Source: RFC 8259; RFC 3629, section 4, for UTF-8.
struct JsonRules {
    RuleIndex space;      // one or none: after ":" and ","
    RuleIndex character;  // of a string: UTF-8, or an escape such as \n or \u00e9
    RuleIndex string, integer, number, boolean, null;
    RuleIndex value, object, array;  // any
};
JsonRules add_json_rules(GrammarRules& rules);

// Bytes of a character that UTF-8 and JSON allow in a string without an escape; of those with
// more than one byte, a sequence for each range.
std::vector<Sequence> utf8_characters();

// first (more)*, with min to max elements in total, between two brackets. The elements after
// the first have the comma in front.
struct ElementRules {
    RuleIndex first, more;
};
RuleIndex add_list(GrammarRules& rules, const std::string& name, std::string_view brackets,
                   const ElementRules& element, std::size_t min = 0,
                   std::optional<std::size_t> max = std::nullopt);

// The element, and the element after a comma.
ElementRules add_element(GrammarRules& rules, const std::string& name, RuleIndex space,
                         const Symbol& element);

// Exactly one of these texts. Those with a common beginning share its symbols: a prefix tree.
RuleIndex add_literals(GrammarRules& rules, const std::string& name,
                       std::vector<std::string> texts);

}  // namespace llm
