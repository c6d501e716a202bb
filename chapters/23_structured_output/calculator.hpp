// Chapter 23, file 5 of 7: a tool: a calculator for sums, differences, products and quotients.
#pragma once

#include <string>
#include <string_view>

namespace llm {

// The value of an expression such as "(12 + 30) / 4": +, -, * and / on decimal numbers, and
// parentheses. The text is parsed, never executed. Throws ValueError, which begins with
// "calculator": with the position of what is no expression, for a division by zero, for a
// number or a result above 10^15, and for parentheses more than 64 deep.
double evaluate_expression(std::string_view expression);

// A value as a pocket calculator shows it: "42", "0.3", "0.333333333333": 12 digits.
std::string calculator_text(double value);

}  // namespace llm
