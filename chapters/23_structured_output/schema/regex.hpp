// Chapter 23, schema: regular languages with intersection and complement, and the patterns
// of JSON Schema.
#pragma once

#include <bitset>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "chapters/23_structured_output/grammar.hpp"

namespace llm {

// Characters of a string: each of ASCII, and all others together, as number 128.
using CharacterSet = std::bitset<129>;
std::size_t first_character(const CharacterSet& characters);  // 129: it is empty

// Regular expressions as nodes, each once, so that equal ones have equal numbers. Grammars
// have no intersection; regular languages do: the derivative of "a and b" by a character is the
// derivative of a and that of b. Source: Brzozowski, "Derivatives of Regular Expressions",
// 1964. All functions throw ValueError for an expression of more than 16384 nodes, and for more
// than 131072 different ones: a pattern may come from an untrusted client.
class RegexPool {
 public:
    using Regex = std::size_t;
    static constexpr Regex none = 0, empty = 1;  // no string; the empty string

    RegexPool();
    Regex one_of(const CharacterSet& characters);
    Regex any_text();  // (any character)*
    Regex text(std::string_view text);
    Regex concat(Regex first, Regex second);
    Regex either(std::vector<Regex> parts);
    Regex both(std::vector<Regex> parts);
    Regex complement(Regex regex);
    Regex star(Regex regex);
    // min to max times, at least min times without max. Throws ValueError above max_states.
    Regex repeat(Regex regex, std::size_t min, std::optional<std::size_t> max);

    bool matches(Regex regex, std::string_view text);
    // They throw ValueError if the automaton has more than max_states, add_string, which adds
    // the rule of a JSON string whose characters match, also if there is none.
    static constexpr std::size_t max_states = 4096;
    std::size_t num_states(Regex regex);
    RuleIndex add_string(GrammarRules& rules, const std::string& name, Regex regex);

 private:
    enum class Kind { none, empty, characters, concat, either, both, complement, star };
    struct Node {
        Kind kind;
        std::size_t characters = 0;  // index in sets_
        std::vector<Regex> parts{};
        bool nullable = false;  // does the empty string match?
        std::size_t size = 1;   // nodes of the whole expression
        auto key() const { return std::tie(kind, characters, parts); }
        bool operator<(const Node& other) const { return key() < other.key(); }
    };
    // A state is a regex: what may follow. `next` has its derivative for each class of
    // characters.
    struct Automaton {
        std::vector<Regex> states;
        std::vector<std::vector<std::size_t>> next;  // indices of states
    };

    Regex intern(Kind kind, std::vector<Regex> parts, bool nullable, std::size_t set = 0);
    Regex set_of(Kind kind, std::vector<Regex> parts);
    Regex derivative(Regex regex, std::size_t character);
    std::vector<CharacterSet> character_classes() const;
    Automaton automaton_of(Regex regex, const std::vector<CharacterSet>& classes);
    std::vector<bool> live_states(const Automaton& automaton) const;

    std::vector<Node> nodes_{};
    std::vector<CharacterSet> sets_{};
    std::map<Node, Regex> index_of_{};
    std::map<std::pair<Regex, std::size_t>, Regex> derivatives_{};
};

// The strings in which a pattern of ECMA-262 is found (JSON Schema's "pattern"): also with
// lookaheads. Throws ValueError for what is not regular or not supported: references to groups,
// lookbehind, \b, \p, characters above U+007F in a class.
RegexPool::Regex parse_pattern(RegexPool& pool, const std::string& pattern);

}  // namespace llm
