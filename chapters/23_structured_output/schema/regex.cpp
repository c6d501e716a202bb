#include "chapters/23_structured_output/schema/regex.hpp"

#include <algorithm>

#include "chapters/23_structured_output/json_rules.hpp"

namespace llm {
namespace {

// The JSON texts of one of the characters, in a string.
std::vector<Sequence> json_characters(const CharacterSet& characters) {
    const std::string_view letters = "btnvfr";  // of U+0008 to U+000D; JSON has no \v
    ByteSet plain, after_backslash;
    std::vector<Sequence> texts;
    for (std::size_t c = 0; c < 128; ++c) {
        if (!characters[c]) continue;
        if (c == '"' || c == '\\')
            after_backslash.set(c);
        else if (c >= 0x20)
            plain.set(c);
        else if (c >= 8 && c <= 13 && c != 11)
            after_backslash.set(static_cast<unsigned char>(letters[c - 8]));
        else
            texts.push_back(
                literal(std::string("\\u00") + "01"[c / 16] + "0123456789abcdef"[c % 16]));
    }
    if (plain.any()) texts.push_back({plain});
    if (after_backslash.any()) texts.push_back({bytes_of("\\"), after_backslash});
    for (const Sequence& character : utf8_characters())
        if (characters[128] && character.size() > 1) texts.push_back(character);
    return texts;
}

}  // namespace

std::size_t first_character(const CharacterSet& characters) {
    std::size_t first = 0;
    while (first < characters.size() && !characters[first]) ++first;
    return first;
}

using Regex = RegexPool::Regex;

RegexPool::RegexPool() {
    intern(Kind::none, {}, false);
    intern(Kind::empty, {}, true);
}

Regex RegexPool::intern(Kind kind, std::vector<Regex> parts, bool nullable, std::size_t set) {
    Node node{kind, set, std::move(parts), nullable};
    for (const Regex part : node.parts) node.size += nodes_[part].size;
    require(node.size <= 1 << 14 && nodes_.size() < 1 << 17, "regex: too large");
    const auto [found, is_new] = index_of_.try_emplace(node, nodes_.size());
    if (is_new) nodes_.push_back(std::move(node));
    return found->second;
}

Regex RegexPool::one_of(const CharacterSet& characters) {
    if (characters.none()) return none;
    const auto found = std::find(sets_.begin(), sets_.end(), characters);
    const auto set = static_cast<std::size_t>(found - sets_.begin());
    if (found == sets_.end()) sets_.push_back(characters);
    return intern(Kind::characters, {}, false, set);
}

Regex RegexPool::any_text() { return star(one_of(CharacterSet().set())); }

Regex RegexPool::text(std::string_view text) {
    Regex result = empty;
    for (std::size_t i = text.size(); i-- > 0;) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte >= 0x80 && byte < 0xc0) continue;  // one character has several bytes
        result = concat(one_of(CharacterSet().set(std::min<std::size_t>(byte, 128))), result);
    }
    return result;
}

Regex RegexPool::concat(Regex first, Regex second) {
    if (first == none || second == none) return none;
    if (first == empty) return second;
    if (second == empty) return first;
    if (nodes_[first].kind == Kind::concat) {  // to the right, so that equal texts are equal
        const std::vector<Regex> parts = nodes_[first].parts;
        return concat(parts[0], concat(parts[1], second));
    }
    return intern(Kind::concat, {first, second},
                  nodes_[first].nullable && nodes_[second].nullable);
}

// "either" and "both" are sets: nested ones become one, sorted and without duplicates.
Regex RegexPool::set_of(Kind kind, std::vector<Regex> parts) {
    std::vector<Regex> all;
    for (const Regex part : parts)
        if (nodes_[part].kind == kind)
            all.insert(all.end(), nodes_[part].parts.begin(), nodes_[part].parts.end());
        else
            all.push_back(part);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (all.size() == 1) return all[0];
    const auto nullable = [&](Regex part) { return nodes_[part].nullable; };
    return intern(kind, all,
                  kind == Kind::either ? std::any_of(all.begin(), all.end(), nullable)
                                       : std::all_of(all.begin(), all.end(), nullable));
}

Regex RegexPool::either(std::vector<Regex> parts) {
    const Regex all = any_text();
    if (std::find(parts.begin(), parts.end(), all) != parts.end()) return all;
    std::erase(parts, none);
    return parts.empty() ? none : set_of(Kind::either, std::move(parts));
}

Regex RegexPool::both(std::vector<Regex> parts) {
    if (std::find(parts.begin(), parts.end(), none) != parts.end()) return none;
    std::erase(parts, any_text());
    return parts.empty() ? any_text() : set_of(Kind::both, std::move(parts));
}

Regex RegexPool::complement(Regex regex) {
    if (regex == none) return any_text();
    if (regex == any_text()) return none;
    if (nodes_[regex].kind == Kind::complement) return nodes_[regex].parts[0];
    return intern(Kind::complement, {regex}, !nodes_[regex].nullable);
}

Regex RegexPool::star(Regex regex) {
    if (regex == none || regex == empty) return empty;
    if (nodes_[regex].kind == Kind::star) return regex;
    return intern(Kind::star, {regex}, true);
}

Regex RegexPool::repeat(Regex regex, std::size_t min, std::optional<std::size_t> max) {
    require(min < max_states && max.value_or(0) < max_states,
            "regex: repeated more than {} times", max_states - 1);
    Regex result = max ? empty : star(regex);
    for (std::size_t i = min; max && i < *max; ++i)
        result = either({empty, concat(regex, result)});
    for (std::size_t i = 0; i < min; ++i) result = concat(regex, result);
    return result;
}

// What may follow the character in a text that begins with it.
Regex RegexPool::derivative(Regex regex, std::size_t character) {
    const auto known = derivatives_.find({regex, character});
    if (known != derivatives_.end()) return known->second;
    const Node node = nodes_[regex];  // a copy: nodes_ grows
    std::vector<Regex> parts;
    const auto all_parts = [&] {
        for (const Regex part : node.parts) parts.push_back(derivative(part, character));
        return parts;
    };
    Regex result = none;
    switch (node.kind) {
        case Kind::none:
        case Kind::empty:
            break;
        case Kind::characters:
            result = sets_[node.characters][character] ? empty : none;
            break;
        case Kind::concat:
            result = concat(derivative(node.parts[0], character), node.parts[1]);
            if (nodes_[node.parts[0]].nullable)
                result = either({result, derivative(node.parts[1], character)});
            break;
        case Kind::either:
            result = either(all_parts());
            break;
        case Kind::both:
            result = both(all_parts());
            break;
        case Kind::complement:
            result = complement(derivative(node.parts[0], character));
            break;
        case Kind::star:
            result = concat(derivative(node.parts[0], character), regex);
            break;
    }
    return derivatives_[{regex, character}] = result;
}

// Characters that are in the same sets have the same derivatives.
std::vector<CharacterSet> RegexPool::character_classes() const {
    std::map<std::vector<bool>, CharacterSet> by_sets;
    for (std::size_t character = 0; character < CharacterSet().size(); ++character) {
        std::vector<bool> in_set;
        for (const CharacterSet& set : sets_) in_set.push_back(set[character]);
        by_sets[in_set].set(character);
    }
    std::vector<CharacterSet> classes;
    for (const auto& [in_set, characters] : by_sets) classes.push_back(characters);
    return classes;
}

RegexPool::Automaton RegexPool::automaton_of(Regex regex,
                                             const std::vector<CharacterSet>& classes) {
    Automaton automaton{{regex}, {}};
    std::map<Regex, std::size_t> state_of = {{regex, 0}};
    for (std::size_t state = 0; state < automaton.states.size(); ++state) {
        require(state < max_states, "regex: more than {} states", max_states);
        automaton.next.emplace_back();
        for (const CharacterSet& characters : classes) {
            const Regex after =
                derivative(automaton.states[state], first_character(characters));
            const auto [found, is_new] = state_of.emplace(after, automaton.states.size());
            if (is_new) automaton.states.push_back(after);
            automaton.next[state].push_back(found->second);
        }
    }
    return automaton;
}

// Whether a text can still match: the state is nullable, or leads to one that is.
std::vector<bool> RegexPool::live_states(const Automaton& automaton) const {
    std::vector<bool> live(automaton.states.size());
    for (std::size_t i = 0; i < live.size(); ++i)
        live[i] = nodes_[automaton.states[i]].nullable;
    for (bool changed = true; changed;) {
        changed = false;
        for (std::size_t i = live.size(); i-- > 0;)
            if (!live[i])
                changed |= live[i] =
                    std::any_of(automaton.next[i].begin(), automaton.next[i].end(),
                                [&](std::size_t next) { return live[next]; });
    }
    return live;
}

bool RegexPool::matches(Regex regex, std::string_view text) {
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80 || byte >= 0xc0)  // one character has several bytes
            regex = derivative(regex, std::min<std::size_t>(byte, 128));
    }
    return nodes_[regex].nullable;
}

std::size_t RegexPool::num_states(Regex regex) {
    return automaton_of(regex, character_classes()).states.size();
}

RuleIndex RegexPool::add_string(GrammarRules& rules, const std::string& name, Regex regex) {
    const std::vector<CharacterSet> classes = character_classes();
    const Automaton automaton = automaton_of(regex, classes);
    const std::vector<bool> live = live_states(automaton);
    require(live[0], "regex: no string matches");

    // A rule for each state. Characters that lead to the same state share an alternative.
    std::vector<RuleIndex> rule_of(live.size());
    for (std::size_t i = 0; i < live.size(); ++i)
        if (live[i]) rule_of[i] = rules.declare(name);
    for (std::size_t i = 0; i < live.size(); ++i) {
        if (!live[i]) continue;
        std::map<std::size_t, CharacterSet> characters_to;
        for (std::size_t k = 0; k < classes.size(); ++k)
            if (live[automaton.next[i][k]]) characters_to[automaton.next[i][k]] |= classes[k];
        std::vector<Sequence> alternatives;
        if (nodes_[automaton.states[i]].nullable) alternatives.push_back({});
        for (const auto& [next, characters] : characters_to)
            for (Sequence text : json_characters(characters)) {
                text.push_back(rule_of[next]);
                alternatives.push_back(std::move(text));
            }
        rules.define(rule_of[i], std::move(alternatives));
    }
    return rules.add(name, {{bytes_of("\""), rule_of[0], bytes_of("\"")}});
}

}  // namespace llm
