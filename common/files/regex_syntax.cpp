#include "common/files/regex_syntax.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/files/unicode.hpp"

namespace llm {
namespace {

// Sets that PCRE2 defines differently: its \s contains U+180E, which is not White_Space, and
// its \h is a horizontal space. "S" lists all categories but those of white space. (\w and \b
// are refused, because Oniguruma treats ½ as a word character only in some contexts.)
const std::map<std::string, std::string> sets = {
    {"s", R"(\p{Z}\x09-\x0d\x85)"},
    {"S", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Cn}\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f)"},
    {"d", R"(\p{Nd})"},
    {"D", R"(\P{Nd})"},
    {"h", R"(0-9A-Fa-f)"},
    {"H", R"(\x00-/:-@G-`g-\x{10ffff})"}};

bool is_one_of(const std::string& character, const std::string& characters) {
    return character.size() == 1 && characters.find(character) != characters.npos;
}

// A character or a set of characters, as PCRE2 spells it inside brackets.
struct Element {
    std::string text;
    bool is_set;
};

// A position in an expression, and what both patterns and classes consist of: escapes.
class Reader {
 public:
    explicit Reader(const std::string& expression)
        : expression_(expression), in_(characters(expression)) {}

 protected:
    std::string expression_;
    std::vector<std::string> in_;  // the characters of the expression
    std::size_t at_ = 0;
    bool ignore_case_ = false;

    [[noreturn]] void refuse(const std::string& construct, std::size_t position) const {
        throw TextError(fmt::format("{} is not supported (character {} of the pattern '{}')",
                                    construct, position + 1, expression_));
    }

    // The next characters; fewer at the end.
    std::string peek(std::size_t count = 1, std::size_t ahead = 0) const {
        std::string text;
        for (std::size_t i = at_ + ahead; i < std::min(at_ + ahead + count, in_.size()); ++i)
            text += in_[i];
        return text;
    }

    // Skips an ASCII text if it comes next.
    bool take(const std::string& text) {
        if (peek(text.size()) != text) return false;
        at_ += text.size();
        return true;
    }

    Element read_escape() {
        const std::size_t begin = at_;
        const std::string letter = peek(1, 1);
        at_ += 2;
        if (letter == "p" || letter == "P") return {read_property(begin, letter), true};
        if (letter == "x" || letter == "u") return {read_code_point(begin, letter), false};
        if (letter == "v") return {R"(\x0b)", false};  // PCRE2: all vertical spaces
        if (const auto set = sets.find(letter); set != sets.end()) return {set->second, true};
        const bool is_ascii = letter.size() == 1 && static_cast<signed char>(letter[0]) > 0;
        const bool is_literal = is_ascii && !std::isalnum(letter[0]);
        if (!is_literal && !is_one_of(letter, "nrtfae")) refuse("\\" + letter, begin);
        return {"\\" + letter, false};
    }

    // The text in the braces that come next.
    std::string read_braces(std::size_t begin, const std::string& letter) {
        std::string text;
        if (!take("{")) refuse("\\" + letter + " without braces", begin);
        while (at_ < in_.size() && peek() != "}") text += in_[at_++];
        if (!take("}")) refuse("\\" + letter + "{ without }", begin);
        return text;
    }

    // A general category, or a script: PCRE2's \p{Han} has also the script extensions of Han.
    std::string read_property(std::size_t begin, const std::string& letter) {
        std::string name = read_braces(begin, letter);
        const std::string sign = name.starts_with('^') ? "^" : "";
        name.erase(0, sign.size());
        const bool is_category = name.size() <= 2;
        if (ignore_case_ && is_category && name.size() == 2 && (name[0] | 32) == 'l')
            refuse("\\" + letter + "{" + name + "} in a case-insensitive group", begin);
        return "\\" + letter + "{" + sign + (is_category ? "" : "sc:") + name + "}";
    }

    // \xHH of ASCII, \x{H...} or \uHHHH.
    std::string read_code_point(std::size_t begin, const std::string& letter) {
        const bool braces = letter == "x" && peek() == "{";
        std::string digits = braces ? read_braces(begin, letter) : peek(letter == "x" ? 2 : 4);
        if (!braces) at_ = std::min<std::size_t>(at_ + (letter == "x" ? 2 : 4), in_.size());
        const bool is_byte = letter == "x" && !braces && digits > "7f";
        if (is_byte || digits.empty() ||
            digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
            refuse("\\" + letter + digits, begin);
        return "\\x{" + digits + "}";
    }
};

// Translates character classes. PCRE2 has no class in a class and no intersection.
class ClassReader : public Reader {
 protected:
    using Reader::Reader;

    // The part of a class between [, && and ]. It may consist of one negated class.
    struct Operand {
        std::string content;
        bool negated = false;
    };

    std::string read_class() {
        const std::size_t begin = at_++;
        const bool negated = take("^");
        std::vector<Operand> operands = {read_operand(begin)};
        while (take("&&")) operands.push_back(read_operand(begin));
        ++at_;  // ]
        const auto brackets = [](const std::string& content, bool is_negated) {
            return (is_negated ? "[^" : "[") + content + "]";
        };
        const auto [first, first_negated] = operands[0];
        if (operands.size() == 1) return brackets(first, first_negated != negated);

        // Write an intersection as one class after a lookahead for each of the others.
        if (negated) refuse("&& in a negated class", begin);
        std::string result = "(?:";
        for (std::size_t i = 1; i < operands.size(); ++i)
            result += (operands[i].negated ? "(?!" : "(?=") +
                      brackets(operands[i].content, false) + ")";
        return result + brackets(first, first_negated) + ")";
    }

    bool at_end_of_operand() const { return peek() == "]" || peek(2) == "&&"; }

    Operand read_operand(std::size_t begin, bool is_inner = false) {
        Operand operand;
        bool after_character = false;  // the begin of a range?
        while (!at_end_of_operand()) {
            if (at_ == in_.size()) refuse("a [ without ]", begin);
            if (peek() == "[") {
                if (is_inner) refuse("a class in a class in a class", at_);
                const Operand inner = read_inner_class();
                if (inner.negated && !(operand.content.empty() && at_end_of_operand()))
                    refuse("a negated class in a class", begin);
                operand = {operand.content + inner.content, inner.negated};
                after_character = false;
            } else if (peek() == "-") {
                operand.content += read_hyphen(after_character);
                after_character = false;
            } else {
                const Element element = read_element();
                operand.content += element.text;
                after_character = !element.is_set;
            }
        }
        if (operand.content.empty()) refuse("an empty class", begin);
        return operand;
    }

    // A class in a class is a union, or, if it is negated, a whole operand.
    Operand read_inner_class() {
        const std::size_t begin = at_++;
        if (peek() == ":") {
            std::size_t length = 1;
            while (!is_one_of(peek(1, length - 1), "]") && !peek(1, length).empty()) ++length;
            refuse("[" + peek(length), begin);  // [:alpha:]
        }
        const bool negated = take("^");
        Operand inner = read_operand(begin, true);
        if (peek() == "&") refuse("&& in a class in a class", begin);
        ++at_;  // ]
        inner.negated = inner.negated != negated;
        return inner;
    }

    // A hyphen between two characters makes a range. Any other one is a literal.
    std::string read_hyphen(bool after_character) {
        const std::size_t begin = at_++;
        if (peek() == "-") refuse("-- in a class", begin);
        if (!after_character || at_end_of_operand() || peek() == "[") return R"(\-)";
        const Element last = read_element();
        if (last.is_set) refuse("a range that ends with a set", begin);
        return "-" + last.text;
    }

    Element read_element() {
        if (peek() == "\\") return read_escape();
        const std::string character = peek();
        if (ignore_case_ && character.size() > 1)
            refuse(character + " in a case-insensitive group", at_);
        ++at_;
        return {character == "^" ? R"(\^)" : character, false};
    }
};

// Translates a whole pattern.
class PatternReader : public ClassReader {
 public:
    using ClassReader::ClassReader;

    std::string read() {
        if (take("(?i)")) {
            out_ = "(?i)";
            ignore_case_ = true;
        }
        while (at_ < in_.size()) read_item(std::exchange(last_letter_, ""));
        return out_;
    }

 private:
    struct Group {
        bool can_be_repeated;
        bool ignore_case_outside;
    };
    std::string out_;
    std::vector<Group> groups_;  // those that are open
    bool can_be_repeated_ = false;
    std::string last_letter_;  // of a case-insensitive literal

    void append(const std::string& text, bool can_be_repeated) {
        out_ += text;
        can_be_repeated_ = can_be_repeated;
    }

    void read_item(const std::string& letter_before) {
        const std::string next = peek();
        if (next == "\\") return read_escape_or_anchor();
        if (next == "[") return append(read_class(), true);
        if (next == "(") return open_group();
        if (next == ")") return close_group();
        if (is_one_of(next, "*+?{")) return read_quantifier();
        ++at_;
        append(next, !is_one_of(next, "|^$"));
        if (ignore_case_) check_case_folding(letter_before, next);
    }

    void read_escape_or_anchor() {
        const std::string letter = peek(1, 1);
        if (is_one_of(letter, "AzZ")) {
            append("\\" + letter, false);
            at_ += 2;
        } else if (is_one_of(letter, "SDH")) {
            append("[^" + sets.at(std::string(1, letter[0] | 32)) + "]", true);
            at_ += 2;
        } else {
            const Element element = read_escape();
            append(sets.contains(letter) ? "[" + element.text + "]" : element.text, true);
        }
    }

    // Without case, Oniguruma's ss matches ß, too, and its fi the ligature of f and i.
    void check_case_folding(const std::string& before, const std::string& next) {
        const std::size_t begin = at_ - 1;
        if (next.size() > 1) refuse(next + " in a case-insensitive group", begin);
        last_letter_ = static_cast<char>(std::tolower(next[0]));
        for (const std::string letters : {"ss", "ff", "fi", "fl", "st"})
            if (before + last_letter_ == letters)
                refuse(letters + " in a case-insensitive group", begin - 1);
    }

    void open_group() {
        static const std::vector<std::string> kinds = {"(?:", "(?i:", "(?-i:", "(?>",
                                                       "(?=", "(?!",  "(?<=",  "(?<!"};
        const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& start) {
            return peek(start.size()) == start;
        });
        const bool plain = !is_one_of(peek(1, 1), "?*");
        if (!plain && kind == kinds.end()) refuse("the group " + peek(4), at_);
        const std::string start = plain ? "(" : *kind;
        groups_.push_back({start.find_first_of("=!") == start.npos, ignore_case_});
        if (start == "(?i:") ignore_case_ = true;
        if (start == "(?-i:") ignore_case_ = false;
        at_ += start.size();
        append(start, false);
    }

    void close_group() {
        if (groups_.empty()) refuse("a ) without (", at_);
        ++at_;
        append(")", groups_.back().can_be_repeated);
        ignore_case_ = groups_.back().ignore_case_outside;
        groups_.pop_back();
    }

    // Returns {n}, {n,}, {,m} or {n,m} if it comes next.
    std::string peek_interval() const {
        std::size_t length = 1;
        while (is_one_of(peek(1, length), "0123456789,")) ++length;
        const std::string interval = peek(length + 1);
        const bool complete = interval.ends_with('}') && interval != "{}" && interval != "{,}";
        return complete && std::count(interval.begin(), interval.end(), ',') < 2 ? interval
                                                                                 : "";
    }

    void read_quantifier() {
        const std::size_t begin = at_;
        std::string quantifier = peek() == "{" ? peek_interval() : peek();
        at_ += std::max<std::size_t>(quantifier.size(), 1);
        if (quantifier.empty()) return append(R"(\{)", true);
        if (!can_be_repeated_) refuse(quantifier + " with nothing to repeat", begin);

        // In Oniguruma, {n,m}+ is not possessive and {n}? is not lazy.
        const bool exact = quantifier[0] == '{' && quantifier.find(',') == quantifier.npos;
        if ((quantifier[0] == '{' && peek() == "+") || (exact && peek() == "?"))
            refuse(quantifier + peek(), begin);
        if (quantifier.starts_with("{,")) quantifier.insert(1, "0");
        if (is_one_of(peek(), "?+")) quantifier += in_[at_++];  // lazy or possessive
        append(quantifier, false);
    }
};

}  // namespace

std::string pcre2_from_oniguruma(const std::string& expression) {
    return PatternReader(expression).read();
}

}  // namespace llm
