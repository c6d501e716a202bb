// The lines in which show() prints a tensor: xtensor's own print, with columns that are aligned
// and rows that fit the terminal. Only show.cpp includes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "common/output/terminal.hpp"
#include "common/tensors/tensor_io.hpp"

namespace llm {

inline constexpr std::size_t summary_threshold =
    250;  // elements; larger tensors are summarized

inline bool is_number_character(char c) {
    return c != ' ' && c != '\n' && c != ',' && c != '{' && c != '}';
}

// Calls visit(begin, end, padding) for each number in the printed tensor. The padding is the
// count of spaces to its left, without the one after a comma.
inline void for_each_number(const std::string& text, auto&& visit) {
    std::size_t end = 0;
    for (std::size_t begin = 0; begin < text.size(); begin = std::max(end, begin + 1)) {
        if (!is_number_character(text[begin])) continue;
        for (end = begin; end < text.size() && is_number_character(text[end]);) ++end;
        if (text.compare(begin, end - begin, "...") == 0) continue;
        std::size_t spaces = 0;
        while (spaces < begin && text[begin - spaces - 1] == ' ') ++spaces;
        const bool after_comma = spaces < begin && text[begin - spaces - 1] == ',';
        visit(begin, end, after_comma && spaces > 0 ? spaces - 1 : spaces);
    }
}

// xtensor ignores infinities and NaN when it computes the width of columns. Pads "0." to the
// width of "-inf", and removes the sign that x86 gives to NaN.
inline std::string align_columns(std::string text) {
    for (std::size_t at = 0; (at = text.find("-nan", at)) != text.npos;) text.erase(at, 1);

    std::size_t width = 0;
    for_each_number(text, [&](std::size_t begin, std::size_t end, std::size_t padding) {
        width = std::max(width, end - begin + padding);
    });
    std::string aligned;
    std::size_t copied = 0;
    for_each_number(text, [&](std::size_t begin, std::size_t end, std::size_t padding) {
        aligned.append(text, copied, begin - copied);
        aligned.append(width - std::min(width, end - begin + padding), ' ');
        copied = begin;
    });
    return aligned + text.substr(copied);
}

// The lines of xtensor's print with this many digits after the decimal point.
template <class T, std::size_t N>
std::vector<std::string> lines_with_precision(const xt::xtensor<T, N>& tensor, int precision) {
    xt::print_options::set_precision(precision);
    std::ostringstream stream;
    stream << tensor;
    std::string text = stream.str();
    const auto not_finite = [](T number) {
        return !std::isfinite(static_cast<double>(number));
    };
    if (std::any_of(tensor.begin(), tensor.end(), not_finite)) text = align_columns(text);

    std::vector<std::string> lines;
    std::istringstream whole(text);
    for (std::string line; std::getline(whole, line);) {
        line.erase(line.find_last_not_of(' ') + 1);
        lines.push_back(line);
    }
    return lines;
}

// xtensor leaves a column for signs. Removes it from rows that are too long, if no number is
// negative.
inline void narrow(std::vector<std::string>& lines, std::size_t width) {
    const auto fits = [&](const std::string& line) { return line.size() <= width; };
    const auto has_sign = [](const std::string& line) { return line.find('-') != line.npos; };
    if (std::all_of(lines.begin(), lines.end(), fits) ||
        std::any_of(lines.begin(), lines.end(), has_sign))
        return;
    for (std::string& line : lines) {
        std::string narrow_line;
        std::size_t copied = 0;
        for_each_number(line, [&](std::size_t begin, std::size_t, std::size_t padding) {
            narrow_line.append(line, copied, begin - copied - (padding > 0 ? 1 : 0));
            copied = begin;
        });
        line = narrow_line + line.substr(copied);
    }
}

// Prints four digits, or fewer if each row then fits on one line.
template <class T, std::size_t N>
std::vector<std::string> printed_lines(const xt::xtensor<T, N>& tensor) {
    if (tensor.size() == 0) return {"{}"};  // xtensor's print does not terminate
    xt::print_options::set_threshold(summary_threshold);
    const std::size_t width = std::clamp<std::size_t>(terminal_width(), 40, 80);
    xt::print_options::set_line_width(static_cast<int>(width - N - 3));  // room for braces

    const std::size_t rows = tensor.size() / tensor.shape(N - 1);
    for (const int precision : {4, 3, 2}) {
        std::vector<std::string> lines = lines_with_precision(tensor, precision);
        narrow(lines, width);
        if (lines.size() <= rows) return lines;
    }
    return lines_with_precision(tensor, 4);
}

// The range of a tensor's colors, and what else occurs in it.
template <class T, std::size_t N>
ColorScale scale_of(const xt::xtensor<T, N>& tensor) {
    ColorScale scale;
    for (const T number : tensor) {
        const double value = static_cast<double>(number);
        if (value == -infinity) scale.has_minus_infinity = true;
        if (std::isnan(value)) scale.has_nan = true;
        if (!std::isfinite(value)) continue;
        scale.low = std::min(scale.low, value);
        scale.high = std::max(scale.high, value);
    }
    return scale;
}

}  // namespace llm
