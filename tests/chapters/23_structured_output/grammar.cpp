#include <set>

#include "chapters/23_structured_output/grammar.hpp"
#include "chapters/23_structured_output/json_rules.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"

using namespace llm;

namespace {

// sum ::= product | product "+" sum;  product ::= digit | "(" sum ")"
Grammar grammar_of_sums() {
    GrammarRules rules;
    const RuleIndex sum = rules.declare("sum");
    const RuleIndex product = rules.add(
        "product", {{byte_range('0', '9')}, joined({literal("("), {sum}, literal(")")})});
    rules.define(sum, {{product}, joined({{product}, literal("+"), {sum}})});
    return Grammar(std::move(rules), sum);
}

// brackets ::= "[" brackets "]" | nothing
Grammar grammar_of_brackets() {
    GrammarRules rules;
    const RuleIndex rule = rules.declare("brackets");
    rules.define(rule, {joined({literal("["), {rule}, literal("]")}), {}});
    return Grammar(std::move(rules), rule);
}

std::string grammar_error(const GrammarRules& rules, RuleIndex root) try {
    Grammar(rules, root);
    return "none";
} catch (const ValueError& error) {
    return error.what();
}

// All texts over "ab" of at most this length, shorter ones first.
std::vector<std::string> all_texts(std::size_t max_length) {
    std::vector<std::string> texts = {""};
    for (std::size_t i = 0; i < texts.size(); ++i)
        if (texts[i].size() < max_length)
            for (const char letter : {'a', 'b'}) texts.push_back(texts[i] + letter);
    return texts;
}

// The texts of a rule whose sequences only name earlier rules.
using Texts = std::set<std::string>;
Texts texts_of(const Rule& rule, const std::vector<Texts>& earlier) {
    Texts all;
    for (const Sequence& sequence : rule.alternatives) {
        Texts texts = {""};
        for (const Symbol& symbol : sequence) {
            Texts longer;
            for (const std::string& text : texts) {
                if (const RuleIndex* nonterminal = std::get_if<RuleIndex>(&symbol)) {
                    for (const std::string& end : earlier[*nonterminal])
                        longer.insert(text + end);
                } else {
                    for (const char byte : {'a', 'b'})
                        if (std::get<ByteSet>(symbol)[static_cast<unsigned char>(byte)])
                            longer.insert(text + byte);
                }
            }
            texts = longer;
        }
        all.insert(texts.begin(), texts.end());
    }
    return all;
}

}  // namespace

TEST_CASE("a grammar of sums takes exactly the sums, byte by byte") {
    const Grammar grammar = grammar_of_sums();
    for (const std::string text : {"1", "1+2", "(1)", "((1+2)+3)+4", "1+(2+3)"})
        CHECK_MESSAGE(matches(grammar, text), text);
    for (const std::string text : {"", "+", "1+", "(1", "1)", "12", "()", "1++2", "a"})
        CHECK_MESSAGE(!matches(grammar, text), text);
}

TEST_CASE("the bytes that may come next are those of all derivations") {
    const Grammar grammar = grammar_of_sums();
    const auto allowed_after = [&](const std::string& text) {
        return allowed_bytes(grammar, advance(grammar, start_state(grammar), text));
    };
    const ByteSet first = byte_range('0', '9') | bytes_of("(");
    CHECK(allowed_after("") == first);
    CHECK(allowed_after("1") == bytes_of("+"));
    CHECK(allowed_after("1+") == first);
    CHECK(allowed_after("(1") == bytes_of("+)"));
    CHECK(allowed_after("x").none());
}

TEST_CASE("a state has one stack for each derivation, and equal ones once") {
    GrammarRules rules;
    const RuleIndex root = rules.add("root", {literal("ab"), literal("ac"), literal("b")});
    const Grammar grammar(std::move(rules), root);
    CHECK(start_state(grammar).stacks.size() == 3);
    CHECK(advance(grammar, start_state(grammar), "a").stacks.size() == 2);
    CHECK(advance(grammar, start_state(grammar), "ab").stacks.size() == 1);
    CHECK(is_rejected(advance(grammar, start_state(grammar), "ad")));

    // Two ways to the same rest: one stack.
    GrammarRules doubled;
    const RuleIndex a = doubled.add("a", {literal("a"), literal("a")});
    const RuleIndex text = doubled.add("text", {joined({{a}, literal("b")})});
    const Grammar same(std::move(doubled), text);
    CHECK(advance(same, start_state(same), "a").stacks.size() == 1);
}

TEST_CASE("random grammars take exactly the texts that their rules produce") {
    Generator generator(3);
    const auto below = [&](std::uint32_t count) { return generator.next_32_bits() % count; };
    for (int trial = 0; trial < 300; ++trial) {
        GrammarRules rules;
        std::vector<Texts> texts;
        for (std::uint32_t rule = 0; rule < 4; ++rule) {
            std::vector<Sequence> alternatives(1 + below(3));
            for (Sequence& sequence : alternatives)
                for (std::uint32_t i = below(4); i > 0; --i) {
                    if (rule > 0 && below(2) == 0) {
                        sequence.push_back(RuleIndex(below(rule)));
                    } else {
                        sequence.push_back(bytes_of(below(3) == 0 ? "ab"
                                                    : below(2)    ? "a"
                                                                  : "b"));
                    }
                }
            texts.push_back(texts_of({"", alternatives}, texts));
            rules.add("rule " + to_text(rule), alternatives);
        }
        const Grammar grammar(std::move(rules), 3);
        for (const std::string& text : all_texts(6)) {
            const GrammarState state = advance(grammar, start_state(grammar), text);
            const auto next = texts[3].lower_bound(text);
            const bool begins_one = next != texts[3].end() && next->starts_with(text);
            REQUIRE_MESSAGE(is_complete(state) == texts[3].contains(text), text);
            REQUIRE_MESSAGE(is_rejected(state) == !begins_one, text);
        }
    }
}

TEST_CASE("repeat takes min to max items, or at least min") {
    for (std::size_t min = 0; min < 4; ++min)
        for (std::size_t max = min; max < 6; ++max) {
            GrammarRules rules, unlimited;
            const RuleIndex item = rules.repeat("a", bytes_of("a"), min, max);
            const RuleIndex many = unlimited.repeat("a", bytes_of("a"), min);
            const Grammar grammar(std::move(rules), item), endless(std::move(unlimited), many);
            for (std::size_t n = 0; n < 8; ++n) {
                CAPTURE(n);
                CHECK(matches(grammar, std::string(n, 'a')) == (min <= n && n <= max));
                CHECK(matches(endless, std::string(n, 'a')) == (min <= n));
            }
        }
}

TEST_CASE("a loop at the end of a rule does not make the stack deeper") {
    GrammarRules rules;
    const RuleIndex root = rules.repeat("a", bytes_of("a"), 0);
    const Grammar grammar(std::move(rules), root);
    GrammarState state = start_state(grammar);
    for (int i = 0; i < 10000; ++i) state = advance(grammar, state, 'a');
    REQUIRE(state.stacks.size() == 2);
    for (const Stack& stack : state.stacks) CHECK((!stack || stack->depth == 1));
}

TEST_CASE("a stack that is too deep is dropped, and the others go on") {
    const Grammar grammar = grammar_of_brackets();
    const std::string open(256, '['), close(256, ']');
    const GrammarState deepest = advance(grammar, start_state(grammar), open);
    CHECK(allowed_bytes(grammar, deepest) == bytes_of("]"));
    CHECK(is_complete(advance(grammar, deepest, close)));
    CHECK(allowed_bytes(grammar, advance(grammar, start_state(grammar), open.substr(1))) ==
          bytes_of("[]"));
}

TEST_CASE("left recursion is rejected with the name of a rule in the cycle") {
    GrammarRules direct;
    const RuleIndex sum = direct.declare("sum");
    direct.define(sum, {joined({{sum}, literal("+1")}), literal("1")});
    CHECK(grammar_error(direct, sum) == "grammar: rule 'sum' is left-recursive");

    // outer leads to the cycle of a and b, and is not in it. The space may be empty.
    GrammarRules indirect;
    const RuleIndex outer = indirect.declare("outer"), a = indirect.declare("a"),
                    b = indirect.declare("b");
    const RuleIndex space = indirect.add("space", {literal(" "), {}});
    indirect.define(outer, {{a}});
    indirect.define(a, {{space, b}});
    indirect.define(b, {joined({{space, space, a}, literal("x")}), literal("y")});
    const std::string error = grammar_error(indirect, outer);
    const bool names_the_cycle = error == "grammar: rule 'a' is left-recursive" ||
                                 error == "grammar: rule 'b' is left-recursive";
    CHECK_MESSAGE(names_the_cycle, error);

    GrammarRules loop;
    const RuleIndex nothing = loop.add("nothing", {Sequence{}});
    CHECK(grammar_error(loop, loop.repeat("loop", nothing, 0)) ==
          "grammar: rule 'loop' is left-recursive");
}

TEST_CASE("a rule without a finite text is rejected with its name") {
    GrammarRules rules;
    const RuleIndex list = rules.declare("list");
    rules.define(list, {joined({literal("["), {list}, literal("]")})});
    CHECK(grammar_error(rules, list) == "grammar: rule 'list' has no finite text");
    GrammarRules empty_set;
    const RuleIndex none = empty_set.add("none", {{ByteSet{}}});
    CHECK(grammar_error(empty_set, none) == "grammar: rule 'none' has no finite text");
    GrammarRules dangling;
    const RuleIndex rule = dangling.add("rule", {{RuleIndex(7)}});
    CHECK(grammar_error(dangling, rule) ==
          "grammar: rule 'rule' names rule 7, which does not exist");
    CHECK(grammar_error({}, 0) == "grammar: there is no rule 0");
}

TEST_CASE("grammars that are too large or too ambiguous are rejected") {
    GrammarRules rules;
    CHECK_THROWS_WITH_AS(rules.repeat("a", bytes_of("a"), 3, 2),
                         "grammar: 'a' is repeated 3 to 2 times", ValueError);
    CHECK_THROWS_WITH_AS(
        rules.repeat("a", bytes_of("a"), 0, 1000000000000),
        "grammar: 'a' is repeated 1000000000000 times, expected at most 262144", ValueError);
    CHECK_THROWS_WITH_AS(rules.repeat("a", bytes_of("a"), 0, 100000),
                         "grammar: more than 262144 symbols, at rule 'a'", ValueError);

    // Each level doubles the number of stacks: two optional parts of the level below.
    GrammarRules doubling;
    RuleIndex level = doubling.add("a", {literal("a"), {}});
    for (int i = 0; i < 40; ++i) level = doubling.add("level", {{level, level}});
    const Grammar grammar(std::move(doubling), level);
    CHECK_THROWS_WITH_AS(start_state(grammar), "grammar: too ambiguous: more than 512 stacks",
                         ValueError);
}

TEST_CASE("a prefix tree of literals takes exactly its texts") {
    Generator generator(5);
    for (int trial = 0; trial < 50; ++trial) {
        std::vector<std::string> texts;
        for (int i = 0; i < 8; ++i) {
            std::string text;
            for (std::uint32_t n = generator.next_32_bits() % 6; n > 0; --n)
                text += generator.next_32_bits() % 2 == 0 ? 'a' : 'b';
            texts.push_back(text);
        }
        GrammarRules rules;
        const RuleIndex root = add_literals(rules, "words", texts);
        const Grammar grammar(std::move(rules), root);
        CHECK(start_state(grammar).stacks.size() <= 3);  // "a", "b", the end
        for (const std::string& text : all_texts(6))
            REQUIRE(matches(grammar, text) ==
                    (std::find(texts.begin(), texts.end(), text) != texts.end()));
    }
}
