#include "chapters/23_structured_output/calculator.hpp"

#include <cmath>

#include "common/output/show.hpp"
#include "common/tensors/shape.hpp"

namespace llm {
namespace {

constexpr double largest_number = 1e15;
constexpr std::size_t max_expression_depth = 64;

// A recursive-descent parser: one function for each rule of the grammar.
//   sum     ::= product (("+" | "-") product)*
//   product ::= factor (("*" | "/") factor)*
//   factor  ::= "-" factor | "(" sum ")" | number
class ExpressionParser {
 public:
    explicit ExpressionParser(std::string_view text) : text_(text) {}

    double parse() {
        const double value = sum();
        expect(at_ == text_.size(), "an operator");
        return value;
    }

 private:
    std::string_view text_;
    std::size_t at_ = 0, depth_ = 0;

    void expect(bool condition, const std::string& what) const {
        require(condition, "calculator: expected {} at column {}", what, at_ + 1);
    }

    // The next character after spaces; 0 at the end.
    char peek() {
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool take(char character) {
        if (peek() != character) return false;
        ++at_;
        return true;
    }

    static double checked(double value) {
        require(std::abs(value) <= largest_number, "calculator: a number is above 10^15");
        return value;
    }

    double sum() {
        double value = product();
        while (true) {
            if (take('+')) {
                value = checked(value + product());
            } else if (take('-')) {
                value = checked(value - product());
            } else {
                return value;
            }
        }
    }

    double product() {
        double value = factor();
        while (true) {
            if (take('*')) {
                value = checked(value * factor());
            } else if (take('/')) {
                const double divisor = factor();
                require(divisor != 0, "calculator: division by zero");
                value = checked(value / divisor);
            } else {
                return value;
            }
        }
    }

    double factor() {
        require(++depth_ <= max_expression_depth, "calculator: nested more than {} deep",
                max_expression_depth);
        double value = 0;
        if (take('-')) {
            value = -factor();
        } else if (take('(')) {
            value = sum();
            expect(take(')'), "\")\"");
        } else {
            value = number();
        }
        --depth_;
        return value;
    }

    bool at_digit() const {
        return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
    }

    double number() {
        peek();  // skips spaces
        expect(at_digit(), "a number");
        double value = 0, place = 1;
        for (; at_digit(); ++at_) value = checked(10 * value + (text_[at_] - '0'));
        if (at_ == text_.size() || text_[at_] != '.') return value;
        ++at_;
        expect(at_digit(), "a digit");
        double numerator = 0;  // of at most 15 decimals, which a double holds exactly
        for (; at_digit(); ++at_) {
            if (place >= largest_number) continue;
            numerator = 10 * numerator + (text_[at_] - '0');
            place *= 10;
        }
        return checked(value + numerator / place);
    }
};

}  // namespace

double evaluate_expression(std::string_view expression) {
    return ExpressionParser(expression).parse();
}

std::string calculator_text(double value) {
    if (value == std::trunc(value)) return to_text(static_cast<std::int64_t>(value));
    const double digits_before = std::floor(std::log10(std::abs(value))) + 1;
    const double scale = std::pow(10.0, 12 - digits_before);
    return round_trip(std::round(value * scale) / scale);
}

}  // namespace llm
