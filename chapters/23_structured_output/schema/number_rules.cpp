#include "chapters/23_structured_output/schema/number_rules.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "chapters/23_structured_output/json_rules.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t max_digits = 16, max_decimals = 20;

ByteSet digit_byte(std::size_t value) { return ByteSet().set('0' + value); }

// A comparison of decimal digits with those of two bounds. As long as all digits so far equal
// those of a bound, the next one is limited by it; after a digit that differs, no more.
struct Limits {
    bool low = true, high = true;
    auto operator<=>(const Limits&) const = default;
};

// Integers without a sign. All texts of a rule have the same number of digits.
class IntegerRules {
 public:
    IntegerRules(GrammarRules& rules, const std::string& name, std::size_t multiple_of)
        : rules_(rules), name_(name), multiple_of_(multiple_of) {}

    // The multiples from min to max, both at least 0.
    std::vector<Sequence> between(std::int64_t min, std::int64_t max) {
        std::vector<Sequence> alternatives;
        for (std::size_t n = to_text(min).size(); n <= to_text(max).size(); ++n) {
            const std::int64_t least = n == 1 ? 0 : power_of_10(n - 1);
            low_ = to_text(std::max(min, least));
            high_ = to_text(std::min(max, power_of_10(n) - 1));
            limited_.clear();
            if (const auto rule = digits({}, n, 0)) alternatives.push_back({*rule});
        }
        return alternatives;
    }

 private:
    static std::int64_t power_of_10(std::size_t n) {
        std::int64_t power = 1;
        for (std::size_t i = 0; i < n; ++i) power *= 10;
        return power;
    }

    // The last `count` digits, after digits with this remainder; none if there are no such
    // numbers. Those without limits are shared by all lengths.
    std::optional<RuleIndex> digits(const Limits& limits, std::size_t count,
                                    std::size_t remainder) {
        auto& known = limits.low || limits.high ? limited_ : unlimited_;
        const auto key = std::tuple(limits, count, remainder);
        if (const auto found = known.find(key); found != known.end()) return found->second;
        if (count == 0)
            return known[key] = remainder == 0 ? std::optional(rules_.add(name_, {Sequence{}}))
                                               : std::nullopt;

        // The digits that lead to the same rule share an alternative.
        const std::size_t place = low_.size() - count;
        std::map<RuleIndex, ByteSet> digits_to;
        for (std::size_t d = 0; d < 10; ++d) {
            const char byte = static_cast<char>('0' + d);
            if ((limits.low && byte < low_[place]) || (limits.high && byte > high_[place]))
                continue;
            const Limits next = {limits.low && byte == low_[place],
                                 limits.high && byte == high_[place]};
            if (const auto rule = digits(next, count - 1, (10 * remainder + d) % multiple_of_))
                digits_to[*rule] |= digit_byte(d);
        }
        std::vector<Sequence> alternatives;
        for (const auto& [rule, bytes] : digits_to) alternatives.push_back({bytes, rule});
        return known[key] = alternatives.empty()
                                ? std::nullopt
                                : std::optional(rules_.add(name_, alternatives));
    }

    GrammarRules& rules_;
    const std::string& name_;
    std::size_t multiple_of_;
    std::string low_{}, high_{};
    std::map<std::tuple<Limits, std::size_t, std::size_t>, std::optional<RuleIndex>> limited_{},
        unlimited_{};
};

// The multiples of a range that has few of them, as texts.
std::vector<std::string> few_multiples(const IntegerRange& range) {
    std::vector<std::string> texts;
    const std::int64_t step = range.multiple_of;
    std::int64_t value = range.min / step * step;
    if (value < range.min) value += step;
    for (; value <= range.max && texts.size() <= 1000; value += step)
        texts.push_back(to_text(value));
    return texts;
}

}  // namespace

RuleIndex add_integers(GrammarRules& rules, const std::string& name,
                       const IntegerRange& range) {
    const std::vector<std::string> few = few_multiples(range);
    require(!few.empty(), "json_schema: {}: no integer is in the range", name);
    if (few.size() <= 1000) return add_literals(rules, name, few);
    require(range.multiple_of <= 1000,
            "json_schema: {}: multipleOf above 1000 is only supported in small ranges", name);
    IntegerRules integers(rules, name, static_cast<std::size_t>(range.multiple_of));
    std::vector<Sequence> alternatives;
    if (range.max >= 0)
        alternatives = integers.between(std::max<std::int64_t>(range.min, 0), range.max);
    if (range.min < 0) {
        const std::vector<Sequence> sizes =
            integers.between(std::max<std::int64_t>(1, -range.max), -range.min);
        if (!sizes.empty()) alternatives.push_back({bytes_of("-"), rules.add(name, sizes)});
    }
    return rules.add(name, alternatives);
}

namespace {

// A number that is at least 0: digits before the point, and after it without zeros at the end.
struct Decimal {
    std::string whole, fraction;
    bool exclusive = false;
};

Decimal decimal_of(const NumberBound& bound) {
    // The shortest digits that give this double, as digits and a power of 10.
    const std::string text = round_trip(std::abs(bound.value));
    const std::size_t e = text.find('e');
    std::string digits = text.substr(0, e);
    std::ptrdiff_t point = std::ptrdiff_t(std::min(digits.find('.'), digits.size()));
    std::erase(digits, '.');
    if (e != text.npos) point += std::stoi(text.substr(e + 1));

    if (point < 0) digits.insert(0, std::string(std::size_t(-point), '0')), point = 0;
    if (std::size_t(point) > digits.size()) digits.resize(std::size_t(point), '0');
    Decimal decimal{digits.substr(0, std::size_t(point)), digits.substr(std::size_t(point)),
                    bound.exclusive};
    decimal.whole.erase(0, decimal.whole.find_first_not_of('0'));
    decimal.fraction.resize(decimal.fraction.find_last_not_of('0') + 1);
    if (decimal.whole.empty()) decimal.whole = "0";
    return decimal;
}

// Fractions of numbers whose digits before the point equal those of one bound or of both.
class FractionRules {
 public:
    FractionRules(GrammarRules& rules, const std::string& name, const Decimal* min,
                  const Decimal* max)
        : rules_(rules), name_(name), min_(min), max_(max) {}

    // "." and digits, or nothing.
    std::vector<Sequence> alternatives() {
        const Limits limits = {min_ != nullptr, max_ != nullptr};
        std::vector<Sequence> result;
        if (may_end(limits, 0)) result.push_back({});
        for (Sequence& digits : next_digits(limits, 0)) {
            digits.insert(digits.begin(), bytes_of("."));
            result.push_back(std::move(digits));
        }
        return result;
    }

 private:
    static std::size_t digit_at(const Decimal& bound, std::size_t i) {
        return i < bound.fraction.size() ? std::size_t(bound.fraction[i] - '0') : 0;
    }

    // Is the number with the first i digits of the bounds between them?
    bool may_end(const Limits& limits, std::size_t i) const {
        const bool at_least = !limits.low || (i >= min_->fraction.size() && !min_->exclusive);
        const bool at_most = !limits.high || i < max_->fraction.size() || !max_->exclusive;
        return at_least && at_most;
    }

    std::vector<Sequence> next_digits(const Limits& limits, std::size_t i) {
        std::vector<Sequence> alternatives;
        const std::size_t least = limits.low ? digit_at(*min_, i) : 0,
                          most = limits.high ? digit_at(*max_, i) : 9;
        std::map<RuleIndex, ByteSet> digits_to;
        for (std::size_t d = least; d <= most && i < max_decimals; ++d) {
            const Limits next = {limits.low && d == least, limits.high && d == most};
            if (const auto rule = rest(next, i + 1)) digits_to[*rule] |= digit_byte(d);
        }
        for (const auto& [rule, bytes] : digits_to) alternatives.push_back({bytes, rule});
        return alternatives;
    }

    // The digits from the i-th on.
    std::optional<RuleIndex> rest(const Limits& limits, std::size_t i) {
        const auto key = std::tuple(limits, i);
        if (const auto found = known_.find(key); found != known_.end()) return found->second;
        std::vector<Sequence> alternatives;
        if (may_end(limits, i)) alternatives.push_back({});
        for (Sequence& digits : next_digits(limits, i))
            alternatives.push_back(std::move(digits));
        return known_[key] = alternatives.empty()
                                 ? std::nullopt
                                 : std::optional(rules_.add(name_, alternatives));
    }

    GrammarRules& rules_;
    const std::string& name_;
    const Decimal *min_, *max_;
    std::map<std::tuple<Limits, std::size_t>, std::optional<RuleIndex>> known_{};
};

// Adds numbers with these digits before the point, and a fraction within the bounds.
void add_with_fraction(GrammarRules& rules, const std::string& name, const Sequence& whole,
                       const Decimal* min, const Decimal* max,
                       std::vector<Sequence>& alternatives) {
    const std::vector<Sequence> fractions = FractionRules(rules, name, min, max).alternatives();
    if (!fractions.empty())
        alternatives.push_back(joined({whole, {rules.add(name, fractions)}}));
}

// The numbers of at least 0 between two bounds.
std::vector<Sequence> numbers_between(GrammarRules& rules, const std::string& name,
                                      const NumberBound& min, const NumberBound& max) {
    std::vector<Sequence> alternatives;
    if (min.value > max.value) return alternatives;
    const Decimal low = decimal_of(min), high = decimal_of(max);
    if (low.whole == high.whole) {
        add_with_fraction(rules, name, literal(low.whole), &low, &high, alternatives);
        return alternatives;
    }
    if (low.whole.size() > max_digits) return alternatives;
    add_with_fraction(rules, name, literal(low.whole), &low, nullptr, alternatives);
    const bool is_limited = high.whole.size() <= max_digits;
    if (is_limited)
        add_with_fraction(rules, name, literal(high.whole), nullptr, &high, alternatives);
    IntegerRange inner;
    inner.min = std::stoll(low.whole) + 1;
    if (is_limited) inner.max = std::stoll(high.whole) - 1;
    if (inner.min <= inner.max)
        add_with_fraction(rules, name, {add_integers(rules, name, inner)}, nullptr, nullptr,
                          alternatives);
    return alternatives;
}

}  // namespace

RuleIndex add_numbers(GrammarRules& rules, const std::string& name,
                      const std::optional<NumberBound>& min,
                      const std::optional<NumberBound>& max) {
    const NumberBound zero, largest = {1e16, true}, smallest = {-1e16, true};
    const NumberBound low = min.value_or(smallest), high = max.value_or(largest);
    std::vector<Sequence> alternatives =
        numbers_between(rules, name, low.value < 0 ? zero : low, high);
    if (low.value < 0) {
        const NumberBound size_min =
            high.value < 0 ? NumberBound{-high.value, high.exclusive} : NumberBound{0, true};
        const std::vector<Sequence> sizes =
            numbers_between(rules, name, size_min, {-low.value, low.exclusive});
        if (!sizes.empty()) alternatives.push_back({bytes_of("-"), rules.add(name, sizes)});
    }
    require(!alternatives.empty(), "json_schema: {}: no number is between the bounds", name);
    return rules.add(name, alternatives);
}

}  // namespace llm
