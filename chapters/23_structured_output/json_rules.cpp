#include "chapters/23_structured_output/json_rules.hpp"

#include <algorithm>
#include <span>

namespace llm {
namespace {

const ByteSet digit = byte_range('0', '9'), nonzero = byte_range('1', '9');
const ByteSet hex = digit | byte_range('a', 'f') | byte_range('A', 'F');
const ByteSet continuation = byte_range(0x80, 0xbf);  // a byte of UTF-8 that begins nothing

// \n and the like; \uXXXX of a character, or of the two surrogates of one above U+FFFF.
std::vector<Sequence> escapes() {
    const ByteSet d = bytes_of("dD"), not_d = hex & ~d;
    return {{bytes_of("\"\\/bfnrt")},
            {bytes_of("u"), not_d, hex, hex, hex},
            {bytes_of("u"), d, byte_range('0', '7'), hex, hex},
            {bytes_of("u"), d, bytes_of("89abAB"), hex, hex, bytes_of("\\"), bytes_of("u"), d,
             bytes_of("cdefCDEF"), hex, hex}};
}

RuleIndex add_string(GrammarRules& rules, RuleIndex character) {
    const RuleIndex characters = rules.repeat("characters", character, 0);
    return rules.add("string", {{bytes_of("\""), characters, bytes_of("\"")}});
}

void add_numbers(GrammarRules& rules, JsonRules& json) {
    const RuleIndex more_digits = rules.repeat("digits", digit, 0, 15);
    const RuleIndex sign = rules.add("sign", {{bytes_of("-")}, {}});
    const RuleIndex whole = rules.add("whole", {literal("0"), {nonzero, more_digits}});
    const RuleIndex decimals = rules.repeat("decimals", digit, 1, 21);
    const RuleIndex fraction = rules.add("fraction", {{bytes_of("."), decimals}, {}});
    const RuleIndex exponent_sign = rules.add("exponent sign", {{bytes_of("+-")}, {}});
    const RuleIndex exponent_digits = rules.repeat("exponent digits", digit, 1, 2);
    const RuleIndex exponent =
        rules.add("exponent", {{bytes_of("eE"), exponent_sign, exponent_digits}, {}});
    json.integer = rules.add("integer", {{sign, whole}});
    json.number = rules.add("number", {{sign, whole, fraction, exponent}});
}

}  // namespace

// No overlong forms, no surrogates, at most U+10FFFF.
std::vector<Sequence> utf8_characters() {
    const ByteSet ascii = byte_range(0x20, 0x7f) & ~bytes_of("\"\\");
    return {{ascii},
            {byte_range(0xc2, 0xdf), continuation},
            {byte_range(0xe0, 0xe0), byte_range(0xa0, 0xbf), continuation},
            {byte_range(0xe1, 0xec), continuation, continuation},
            {byte_range(0xed, 0xed), byte_range(0x80, 0x9f), continuation},
            {byte_range(0xee, 0xef), continuation, continuation},
            {byte_range(0xf0, 0xf0), byte_range(0x90, 0xbf), continuation, continuation},
            {byte_range(0xf1, 0xf3), continuation, continuation, continuation},
            {byte_range(0xf4, 0xf4), byte_range(0x80, 0x8f), continuation, continuation}};
}

ElementRules add_element(GrammarRules& rules, const std::string& name, RuleIndex space,
                         const Symbol& element) {
    return {rules.add(name, {{element}}), rules.add(name, {{bytes_of(","), space, element}})};
}

RuleIndex add_list(GrammarRules& rules, const std::string& name, std::string_view brackets,
                   const ElementRules& element, std::size_t min,
                   std::optional<std::size_t> max) {
    const Symbol open = bytes_of(brackets.substr(0, 1)), close = bytes_of(brackets.substr(1));
    std::vector<Sequence> alternatives;
    if (min == 0) alternatives.push_back({open, close});
    if (max.value_or(1) > 0) {
        const std::size_t min_more = min == 0 ? 0 : min - 1;
        if (max) max = *max - 1;
        const RuleIndex more = rules.repeat(name, element.more, min_more, max);
        alternatives.push_back({open, element.first, more, close});
    }
    return rules.add(name, alternatives);
}

JsonRules add_json_rules(GrammarRules& rules) {
    JsonRules json;
    json.space = rules.add("space", {literal(" "), {}});
    const RuleIndex escape = rules.add("escape", escapes());
    std::vector<Sequence> characters = utf8_characters();
    characters.push_back({bytes_of("\\"), escape});
    json.character = rules.add("character", characters);
    json.string = add_string(rules, json.character);
    add_numbers(rules, json);
    json.boolean = rules.add("boolean", {literal("true"), literal("false")});
    json.null = rules.add("null", {literal("null")});

    json.value = rules.declare("value");
    const Sequence member = {json.string, bytes_of(":"), json.space, json.value};
    json.object =
        add_list(rules, "object", "{}",
                 add_element(rules, "member", json.space, rules.add("member", {member})));
    json.array =
        add_list(rules, "array", "[]", add_element(rules, "element", json.space, json.value));
    rules.define(json.value, {{json.object},
                              {json.array},
                              {json.string},
                              {json.number},
                              {json.boolean},
                              {json.null}});
    return json;
}

namespace {

// Sorted, distinct texts, which have the same first bytes.
RuleIndex prefix_tree(GrammarRules& rules, const std::string& name,
                      std::span<const std::string> texts, std::size_t num_same) {
    std::vector<Sequence> alternatives;
    if (texts.front().size() == num_same) {  // one text ends here
        alternatives.push_back({});
        texts = texts.subspan(1);
    }
    while (!texts.empty()) {
        // The texts with the same next byte. In sorted texts, what the first and the last have
        // in common, all have.
        const std::string& first = texts.front();
        std::size_t count = 1;
        while (count < texts.size() && texts[count][num_same] == first[num_same]) ++count;
        const std::string& last = texts[count - 1];
        const std::size_t length = std::min(first.size(), last.size());
        const auto end =
            std::mismatch(first.begin(), first.begin() + std::ptrdiff_t(length), last.begin());
        const auto common = static_cast<std::size_t>(end.first - first.begin());
        Sequence sequence = literal(first.substr(num_same, common - num_same));
        if (count > 1) sequence.push_back(prefix_tree(rules, name, texts.first(count), common));
        alternatives.push_back(std::move(sequence));
        texts = texts.subspan(count);
    }
    return rules.add(name, std::move(alternatives));
}

}  // namespace

RuleIndex add_literals(GrammarRules& rules, const std::string& name,
                       std::vector<std::string> texts) {
    require(!texts.empty(), "grammar: '{}' has no texts", name);
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    return prefix_tree(rules, name, texts, 0);
}

}  // namespace llm
