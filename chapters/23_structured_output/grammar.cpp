#include "chapters/23_structured_output/grammar.hpp"

#include <algorithm>
#include <functional>

namespace llm {

ByteSet byte_range(unsigned char first, unsigned char last) {
    ByteSet bytes;
    for (std::size_t byte = first; byte <= last; ++byte) bytes.set(byte);
    return bytes;
}

ByteSet bytes_of(std::string_view text) {
    ByteSet bytes;
    for (const char byte : text) bytes.set(static_cast<unsigned char>(byte));
    return bytes;
}

Sequence literal(std::string_view text) {
    Sequence sequence;
    for (const char byte : text) sequence.push_back(bytes_of({&byte, 1}));
    return sequence;
}

Sequence joined(const std::vector<Sequence>& parts) {
    Sequence sequence;
    for (const Sequence& part : parts)
        sequence.insert(sequence.end(), part.begin(), part.end());
    return sequence;
}

RuleIndex GrammarRules::add(const std::string& name, std::vector<Sequence> alternatives) {
    rules.push_back({name, {}});
    const auto rule = static_cast<RuleIndex>(rules.size() - 1);
    define(rule, std::move(alternatives));
    return rule;
}

void GrammarRules::define(RuleIndex rule, std::vector<Sequence> alternatives) {
    ++num_symbols_;
    for (const Sequence& sequence : alternatives) num_symbols_ += sequence.size() + 1;
    require(num_symbols_ <= max_symbols, "grammar: more than {} symbols, at rule '{}'",
            max_symbols, rules[rule].name);
    rules[rule].alternatives = std::move(alternatives);
}

RuleIndex GrammarRules::repeat(const std::string& name, const Symbol& item, std::size_t min,
                               std::optional<std::size_t> max) {
    require(max.value_or(min) >= min, "grammar: '{}' is repeated {} to {} times", name, min,
            max.value_or(min));
    require(max.value_or(min) <= max_symbols,
            "grammar: '{}' is repeated {} times, expected at most {}", name, max.value_or(min),
            max_symbols);

    // After the items that must be there come those that may be there: a loop, or one rule for
    // each, which is the item and the next rule, or nothing.
    RuleIndex rest;
    if (max) {
        rest = add(name, {Sequence{}});
        for (std::size_t i = min; i < *max; ++i)
            rest = add(name, {Sequence{item, rest}, Sequence{}});
    } else {
        rest = declare(name);
        define(rest, {Sequence{item, rest}, Sequence{}});
    }
    Sequence all(min, item);
    all.push_back(rest);
    return add(name, {all});
}

namespace {

// The rules that have a property, which a rule may have because others have it. Starts with
// none, and asks for all rules until no answer changes.
using RuleSet = std::vector<bool>;
RuleSet rules_that(const std::vector<Rule>& rules,
                   const std::function<bool(const Rule&, const RuleSet& found)>& has_property) {
    RuleSet found(rules.size(), false);
    bool changed = true;
    while (changed) {
        changed = false;
        for (std::size_t rule = 0; rule < rules.size(); ++rule) {
            if (found[rule] || !has_property(rules[rule], found)) continue;
            changed = found[rule] = true;
        }
    }
    return found;
}

// Is there a sequence of bytes that is not empty, or of rules that have been found?
bool has_text(const Rule& rule, const RuleSet& found) {
    const auto symbol_has_text = [&](const Symbol& symbol) {
        const RuleIndex* nonterminal = std::get_if<RuleIndex>(&symbol);
        return nonterminal ? found[*nonterminal] : std::get<ByteSet>(symbol).any();
    };
    return std::any_of(
        rule.alternatives.begin(), rule.alternatives.end(), [&](const Sequence& sequence) {
            return std::all_of(sequence.begin(), sequence.end(), symbol_has_text);
        });
}

// Is there a sequence that may be empty?
bool is_nullable(const Rule& rule, const RuleSet& found) {
    const auto may_be_empty = [&](const Symbol& symbol) {
        const RuleIndex* nonterminal = std::get_if<RuleIndex>(&symbol);
        return nonterminal && found[*nonterminal];
    };
    return std::any_of(rule.alternatives.begin(), rule.alternatives.end(),
                       [&](const Sequence& sequence) {
                           return std::all_of(sequence.begin(), sequence.end(), may_be_empty);
                       });
}

// The rules with which a text of this rule may begin.
std::vector<RuleIndex> left_corners(const Rule& rule, const RuleSet& nullable) {
    std::vector<RuleIndex> corners;
    for (const Sequence& sequence : rule.alternatives)
        for (const Symbol& symbol : sequence) {
            const RuleIndex* nonterminal = std::get_if<RuleIndex>(&symbol);
            if (nonterminal) corners.push_back(*nonterminal);
            if (!nonterminal || !nullable[*nonterminal]) break;
        }
    return corners;
}

// A rule is not left-recursive if none of its left corners is.
void reject_left_recursion(const std::vector<Rule>& rules) {
    const RuleSet nullable = rules_that(rules, is_nullable);
    const auto all_found = [&](const Rule& rule, const RuleSet& found) {
        const std::vector<RuleIndex> corners = left_corners(rule, nullable);
        return std::all_of(corners.begin(), corners.end(),
                           [&](RuleIndex corner) { return found[corner]; });
    };
    const RuleSet not_recursive = rules_that(rules, all_found);
    auto rule = static_cast<std::size_t>(
        std::find(not_recursive.begin(), not_recursive.end(), false) - not_recursive.begin());
    if (rule == rules.size()) return;

    // This rule may only lead to the cycle. After as many steps as there are rules we are in
    // it.
    for (std::size_t i = 0; i < rules.size(); ++i)
        for (const RuleIndex corner : left_corners(rules[rule], nullable))
            if (!not_recursive[corner]) {
                rule = corner;
                break;
            }
    require(false, "grammar: rule '{}' is left-recursive", rules[rule].name);
}

}  // namespace

Grammar::Grammar(GrammarRules rules, RuleIndex root)
    : rules_(std::move(rules.rules)), root_(root) {
    require(root < rules_.size(), "grammar: there is no rule {}", root);
    for (const Rule& rule : rules_)
        for (const Sequence& sequence : rule.alternatives)
            for (const Symbol& symbol : sequence)
                if (const RuleIndex* nonterminal = std::get_if<RuleIndex>(&symbol))
                    require(*nonterminal < rules_.size(),
                            "grammar: rule '{}' names rule {}, which does not exist", rule.name,
                            *nonterminal);
    const RuleSet finite = rules_that(rules_, has_text);
    for (std::size_t rule = 0; rule < rules_.size(); ++rule)
        require(finite[rule], "grammar: rule '{}' has no finite text", rules_[rule].name);
    reject_left_recursion(rules_);
}

namespace {

constexpr std::size_t max_stack_depth = 256, max_stacks = 512, max_expansions = 1 << 14;

const Sequence& sequence_at(const Grammar& grammar, const Position& position) {
    return grammar.rules()[position.rule].alternatives[position.alternative];
}
const Symbol& symbol_at(const Grammar& grammar, const Position& position) {
    return sequence_at(grammar, position)[position.index];
}
const ByteSet& bytes_at(const Grammar& grammar, const Stack& stack) {
    return std::get<ByteSet>(symbol_at(grammar, stack->position));
}

// Puts what is at a position, and after it in its sequence, on top of a stack. Nothing at the
// end of a sequence: so a rule whose last symbol is itself does not make the stack deeper.
Stack push(const Grammar& grammar, const Position& position, const Stack& below) {
    if (position.index == sequence_at(grammar, position).size()) return below;
    return std::make_shared<const Frame>(Frame{position, below, below ? below->depth + 1 : 1});
}

Stack without_first_symbol(const Grammar& grammar, const Stack& stack) {
    Position position = stack->position;
    ++position.index;
    return push(grammar, position, stack->below);
}

bool are_equal(const Frame* a, const Frame* b) {
    while (a != b) {  // the same frame has the same frames below
        if (!a || !b || !(a->position == b->position)) return false;
        a = a->below.get(), b = b->below.get();
    }
    return true;
}

// Replaces a nonterminal on top by each of its alternatives, until bytes are on top.
GrammarState expand(const Grammar& grammar, std::vector<Stack> pending) {
    GrammarState state;
    for (std::size_t i = 0; !pending.empty(); ++i) {
        require(i < max_expansions && state.stacks.size() < max_stacks,
                "grammar: too ambiguous: more than {} stacks", max_stacks);
        const Stack stack = std::move(pending.back());
        pending.pop_back();
        if (stack && stack->depth > max_stack_depth) continue;
        const RuleIndex* nonterminal =
            stack ? std::get_if<RuleIndex>(&symbol_at(grammar, stack->position)) : nullptr;
        if (nonterminal) {
            const Stack rest = without_first_symbol(grammar, stack);
            for (std::size_t n = grammar.rules()[*nonterminal].alternatives.size(); n-- > 0;)
                pending.push_back(
                    push(grammar, {*nonterminal, static_cast<std::uint32_t>(n), 0}, rest));
        } else if (std::none_of(state.stacks.begin(), state.stacks.end(), [&](const Stack& s) {
                       return are_equal(s.get(), stack.get());
                   })) {
            state.stacks.push_back(stack);
        }
    }
    return state;
}

}  // namespace

GrammarState start_state(const Grammar& grammar) {
    std::vector<Stack> stacks;
    for (std::size_t n = grammar.rules()[grammar.root()].alternatives.size(); n-- > 0;)
        stacks.push_back(
            push(grammar, {grammar.root(), static_cast<std::uint32_t>(n), 0}, nullptr));
    return expand(grammar, std::move(stacks));
}

GrammarState advance(const Grammar& grammar, const GrammarState& state, unsigned char byte) {
    std::vector<Stack> stacks;
    for (const Stack& stack : state.stacks)
        if (stack && bytes_at(grammar, stack)[byte])
            stacks.push_back(without_first_symbol(grammar, stack));
    return expand(grammar, std::move(stacks));
}

GrammarState advance(const Grammar& grammar, GrammarState state, std::string_view bytes) {
    for (const char byte : bytes)
        state = advance(grammar, state, static_cast<unsigned char>(byte));
    return state;
}

bool is_complete(const GrammarState& state) {
    return std::find(state.stacks.begin(), state.stacks.end(), nullptr) != state.stacks.end();
}

bool is_rejected(const GrammarState& state) { return state.stacks.empty(); }

ByteSet allowed_bytes(const Grammar& grammar, const GrammarState& state) {
    ByteSet allowed;
    for (const Stack& stack : state.stacks)
        if (stack) allowed |= bytes_at(grammar, stack);
    return allowed;
}

}  // namespace llm
