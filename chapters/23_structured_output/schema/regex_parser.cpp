#include <algorithm>
#include <memory>

#include "chapters/23_structured_output/schema/regex.hpp"

namespace llm {
namespace {

using Regex = RegexPool::Regex;

CharacterSet character_range(std::size_t first, std::size_t last) {
    CharacterSet characters;
    for (std::size_t c = first; c <= last; ++c) characters.set(c);
    return characters;
}
CharacterSet single(std::size_t character) { return CharacterSet().set(character); }

const CharacterSet digits = character_range('0', '9'),
                   word = digits | character_range('a', 'z') | character_range('A', 'Z') |
                          single('_'),
                   white = character_range('\t', '\r') | single(' '),
                   line_ends = single('\n') | single('\r');

// A pattern as a tree.
struct Term {
    enum class Kind { characters, sequence, choice, repeat, look_ahead, begin, end } kind;
    CharacterSet characters{};
    std::vector<Term> parts{};
    std::size_t min = 0;
    std::optional<std::size_t> max{};
    bool negative = false;  // of a lookahead
};

// One function for each rule of the grammar:
//   choice   ::= sequence ("|" sequence)*
//   sequence ::= (atom quantifier?)*
//   atom     ::= "(" choice ")" | "[" class "]" | escape | "." | "^" | "$" | character
class PatternParser {
 public:
    explicit PatternParser(const std::string& pattern) : pattern_(pattern) {}

    Term parse() {
        Term term = choice();
        expect(at_ == pattern_.size(), "unexpected )");
        return term;
    }

 private:
    const std::string& pattern_;
    std::size_t at_ = 0, depth_ = 0;

    void expect(bool condition, const std::string& problem) const {
        require(condition, "pattern: {} at column {}", problem, at_ + 1);
    }
    bool at_end() const { return at_ == pattern_.size(); }
    bool take(std::string_view text) {
        if (pattern_.compare(at_, text.size(), text) != 0) return false;
        at_ += text.size();
        return true;
    }
    // The next character: a byte of ASCII, or 128 for any other.
    std::size_t next_character() {
        expect(!at_end(), "unexpected end");
        const auto byte = static_cast<unsigned char>(pattern_[at_++]);
        if (byte < 128) return byte;
        while (!at_end() && (pattern_[at_] & 0xc0) == 0x80) ++at_;
        return 128;
    }

    Term choice() {
        expect(++depth_ <= 64, "nested more than 64 deep");
        Term term{Term::Kind::choice, {}, {sequence()}};
        while (take("|")) term.parts.push_back(sequence());
        --depth_;
        return term;
    }

    Term sequence() {
        Term term{Term::Kind::sequence};
        while (!at_end() && pattern_[at_] != '|' && pattern_[at_] != ')')
            term.parts.push_back(quantified(atom()));
        return term;
    }

    std::size_t number() {
        expect(!at_end() && digits[static_cast<unsigned char>(pattern_[at_])], "no number");
        std::size_t value = 0;
        while (!at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9' && value < 100000)
            value = 10 * value + static_cast<std::size_t>(pattern_[at_++] - '0');
        return value;
    }

    // A "?" after a quantifier asks for the shortest match, which changes no language.
    Term quantified(Term term) {
        Term repeat{Term::Kind::repeat, {}, {}, 0, {}};
        if (take("+")) {
            repeat.min = 1;
        } else if (take("?")) {
            repeat.max = 1;
        } else if (take("{")) {
            repeat.min = number();
            if (!take(","))
                repeat.max = repeat.min;
            else if (!at_end() && pattern_[at_] != '}')
                repeat.max = number();
            expect(take("}") && repeat.max.value_or(repeat.min) >= repeat.min,
                   "a quantifier is wrong");
        } else if (!take("*")) {
            return term;
        }
        take("?");
        repeat.parts = {std::move(term)};
        return repeat;
    }

    Term atom() {
        if (take("^")) return {Term::Kind::begin};
        if (take("$")) return {Term::Kind::end};
        if (take(".")) return {Term::Kind::characters, ~line_ends};
        if (take("[")) return {Term::Kind::characters, character_class()};
        if (take("\\")) return {Term::Kind::characters, escape()};
        if (take("(")) return group();
        expect(std::string_view("*+?{").find(pattern_[at_]) == std::string_view::npos,
               "nothing to repeat");
        const std::size_t begin = at_, character = next_character();
        if (character < 128) return {Term::Kind::characters, single(character)};
        at_ = begin;
        expect(false, "characters above U+007F are not supported");
        return {};
    }

    Term group() {
        Term term{Term::Kind::sequence};
        if (take("?=") || take("?!")) {
            term.kind = Term::Kind::look_ahead;
            term.negative = pattern_[at_ - 1] == '!';
        } else if (take("?<")) {
            expect(!at_end() && pattern_[at_] != '=' && pattern_[at_] != '!',
                   "lookbehind is not supported");
            at_ = std::min(pattern_.find('>', at_), pattern_.size() - 1) + 1;
        } else {
            const bool has_flags = !take("?:") && take("?");
            expect(!has_flags, "this group is not supported");
        }
        term.parts = {choice()};
        expect(take(")"), "expected )");
        return term;
    }

    std::size_t hexadecimal(std::size_t count) {
        std::size_t value = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t found = std::string_view("0123456789abcdef0123456789ABCDEF")
                                          .find(pattern_[at_++ % pattern_.size()]);
            expect(found != std::string_view::npos, "expected a hexadecimal digit");
            value = 16 * value + found % 16;
        }
        return std::min<std::size_t>(value, 128);
    }

    // What follows a backslash.
    CharacterSet escape() {
        const std::size_t letter = next_character();
        switch (letter) {
            case 'd':
                return digits;
            case 'D':
                return ~digits;
            case 'w':
                return word;
            case 'W':
                return ~word;
            case 's':
                return white;
            case 'S':
                return ~white;
            case 'n':
                return single('\n');
            case 'r':
                return single('\r');
            case 't':
                return single('\t');
            case 'f':
                return single('\f');
            case 'v':
                return single('\v');
            case '0':
                return single(0);
            case 'x':
                return ascii(hexadecimal(2));
            case 'u':
                return ascii(hexadecimal(4));
            default:
                break;
        }
        expect(letter < 128 && !word[letter], "this escape is not supported");
        return single(letter);
    }
    CharacterSet ascii(std::size_t character) const {
        expect(character < 128, "characters above U+007F are not supported");
        return single(character);
    }

    CharacterSet class_member() {
        if (take("\\")) return take("b") ? single('\b') : escape();
        return ascii(next_character());
    }

    CharacterSet character_class() {
        const bool negative = take("^");
        CharacterSet characters;
        while (!take("]")) {
            const CharacterSet first = class_member();
            characters |= first;
            const bool is_range = first.count() == 1 && at_ + 1 < pattern_.size() &&
                                  pattern_[at_] == '-' && pattern_[at_ + 1] != ']';
            if (!is_range) continue;
            ++at_;
            const CharacterSet last = class_member();
            expect(last.count() == 1 && first_character(first) <= first_character(last),
                   "a range is wrong");
            characters |= character_range(first_character(first), first_character(last));
        }
        return negative ? ~characters : characters;
    }
};

// Languages of terms, from the last one to the first: `rest` is the language of what follows,
// so a lookahead is an intersection with it, and "$" one with the empty string.
class PatternLanguage {
 public:
    PatternLanguage(RegexPool& pool, bool at_begin) : pool_(pool), at_begin_(at_begin) {}

    // `first`: is this the first term of the pattern?
    Regex of(const Term& term, Regex rest, bool first) {
        switch (term.kind) {
            case Term::Kind::characters:
                return pool_.concat(pool_.one_of(term.characters), rest);
            case Term::Kind::sequence:
                for (std::size_t i = term.parts.size(); i-- > 0;)
                    rest = of(term.parts[i], rest, first && only_looks(term, i));
                return rest;
            case Term::Kind::choice: {
                std::vector<Regex> parts;
                for (const Term& part : term.parts) parts.push_back(of(part, rest, first));
                return pool_.either(parts);
            }
            case Term::Kind::repeat:
                require(!looks(term), "pattern: an anchor or a lookahead is repeated");
                return pool_.concat(
                    pool_.repeat(of(term.parts[0], pool_.empty, false), term.min, term.max),
                    rest);
            case Term::Kind::look_ahead: {
                const Regex ahead = of(term.parts[0], pool_.any_text(), first);
                return pool_.both({term.negative ? pool_.complement(ahead) : ahead, rest});
            }
            case Term::Kind::begin:
                require(first, "pattern: ^ is only supported at the beginning");
                return at_begin_ ? rest : pool_.none;
            case Term::Kind::end:
                return pool_.both({pool_.empty, rest});
        }
        return rest;
    }

 private:
    // Do the terms before the i-th one of a sequence match no character?
    static bool only_looks(const Term& sequence, std::size_t i) {
        return std::all_of(sequence.parts.begin(), sequence.parts.begin() + std::ptrdiff_t(i),
                           [](const Term& term) {
                               return term.kind == Term::Kind::begin ||
                                      term.kind == Term::Kind::look_ahead;
                           });
    }
    static bool looks(const Term& term) {
        return term.kind >= Term::Kind::look_ahead ||
               std::any_of(term.parts.begin(), term.parts.end(), looks);
    }

    RegexPool& pool_;
    bool at_begin_;
};

}  // namespace

Regex parse_pattern(RegexPool& pool, const std::string& pattern) {
    const Term term = PatternParser(pattern).parse();
    // The pattern is found at the beginning, or after some characters.
    const Regex any = pool.any_text();
    const Regex at_begin = PatternLanguage(pool, true).of(term, any, true);
    const Regex later = PatternLanguage(pool, false).of(term, any, true);
    return pool.either(
        {at_begin, pool.concat(pool.one_of(CharacterSet().set()), pool.concat(any, later))});
}

}  // namespace llm
