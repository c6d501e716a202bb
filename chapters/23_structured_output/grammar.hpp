// Chapter 23, file 1 of 7: a context-free grammar over bytes, and which byte may come next.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/tensors/shape.hpp"

namespace llm {

// A grammar has rules, such as  sum ::= digit | digit "+" sum.  A rule has alternatives, each a
// sequence of symbols. A symbol is a terminal, a set of bytes of which one follows, or a
// nonterminal, the index of a rule. Terminals are bytes and not characters, because a token may
// begin or end in the middle of a UTF-8 character. Source: GBNF, the grammars of llama.cpp.
using ByteSet = std::bitset<256>;
using RuleIndex = std::uint32_t;
using Symbol = std::variant<ByteSet, RuleIndex>;
using Sequence = std::vector<Symbol>;
struct Rule {
    std::string name;
    std::vector<Sequence> alternatives;
};

ByteSet byte_range(unsigned char first, unsigned char last);  // both included
ByteSet bytes_of(std::string_view text);                      // one of these bytes
Sequence literal(std::string_view text);                      // exactly these bytes
Sequence joined(const std::vector<Sequence>& parts);          // one after the other

// The rules of a grammar while it is written.
struct GrammarRules {
    std::vector<Rule> rules;

    // Adds a rule. declare() adds one without alternatives, for recursion: define() adds them.
    // Throws ValueError if the grammar has more than max_symbols.
    RuleIndex add(const std::string& name, std::vector<Sequence> alternatives);
    RuleIndex declare(const std::string& name) { return add(name, {}); }
    void define(RuleIndex rule, std::vector<Sequence> alternatives);

    // A rule for min to max times the item, or at least min times if there is no max. n times
    // need O(n) symbols. Throws ValueError if max < min, or as add().
    RuleIndex repeat(const std::string& name, const Symbol& item, std::size_t min,
                     std::optional<std::size_t> max = std::nullopt);

    static constexpr std::size_t max_symbols = 1 << 18;

 private:
    std::size_t num_symbols_ = 0;
};

// The rules after validation, and the rule of the whole text. Throws ValueError, which names
// the rule: if it is left-recursive, so that it would be expanded forever before a byte is
// read (sum ::= sum "+" digit), or if it has no finite text (list ::= "[" list "]").
class Grammar {
 public:
    Grammar(GrammarRules rules, RuleIndex root);
    const std::vector<Rule>& rules() const { return rules_; }
    RuleIndex root() const { return root_; }

 private:
    std::vector<Rule> rules_;
    RuleIndex root_;
};

// A position in a grammar: a symbol of an alternative of a rule.
struct Position {
    RuleIndex rule = 0;
    std::uint32_t alternative = 0, index = 0;
    bool operator==(const Position&) const = default;
};

// What must follow: the symbol at `position`, those after it in its sequence, and then what
// `below` says. Null: nothing, the text is complete. Stacks share their lower parts.
struct Frame;
using Stack = std::shared_ptr<const Frame>;
struct Frame {
    Position position;
    Stack below;
    std::size_t depth;  // number of frames
};

// The state of a pushdown automaton that follows all derivations at once: one stack for each,
// whose top is a set of bytes. No stacks: no text of the grammar begins with these bytes.
struct GrammarState {
    std::vector<Stack> stacks;
};

// The state before the first byte.
GrammarState start_state(const Grammar& grammar);

// The state after one more byte. A stack of more than 256 frames is dropped: an automaton with
// bounded memory nests only so deep. Throws ValueError for a grammar that is so ambiguous that
// it needs more than 512 stacks.
GrammarState advance(const Grammar& grammar, const GrammarState& state, unsigned char byte);
GrammarState advance(const Grammar& grammar, GrammarState state, std::string_view bytes);

// May the text end here? Is there no text that begins so?
bool is_complete(const GrammarState& state);
bool is_rejected(const GrammarState& state);

// The bytes that may come next: those of all stacks.
ByteSet allowed_bytes(const Grammar& grammar, const GrammarState& state);

}  // namespace llm
