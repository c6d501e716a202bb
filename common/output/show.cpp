#include "common/output/show.hpp"

#include <cmath>
#include <iostream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/terminal.hpp"
#include "common/tensors/tensor_io.hpp"

namespace llm {
namespace {

std::filesystem::path save_folder;  // empty: nothing is saved
std::set<std::string, std::less<>> shown_names;
bool pausing = false;
std::string unprinted_text;  // the incomplete character at the end of write_text's input

constexpr std::size_t summary_threshold = 250;  // elements; larger tensors are summarized

bool is_number_character(char c) {
    return c != ' ' && c != '\n' && c != ',' && c != '{' && c != '}';
}

// Calls visit(begin, end, padding) for each number in the printed tensor. The padding is the
// count of spaces to its left, without the one after a comma.
void for_each_number(const std::string& text, auto&& visit) {
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
std::string align_columns(std::string text) {
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

// Prints four digits, or fewer if each row then fits on one line.
template <class T, std::size_t N>
std::vector<std::string> printed_lines(const xt::xtensor<T, N>& tensor) {
    if (tensor.size() == 0) return {"{}"};  // xtensor's print does not terminate
    xt::print_options::set_threshold(summary_threshold);
    const std::size_t width = std::clamp<std::size_t>(terminal_width(), 40, 96);
    xt::print_options::set_line_width(static_cast<int>(width - N - 3));  // room for braces

    const std::size_t rows = tensor.size() / tensor.shape(N - 1);
    for (const int precision : {4, 3, 2}) {
        std::vector<std::string> lines = lines_with_precision(tensor, precision);
        if (lines.size() <= rows) return lines;
    }
    return lines_with_precision(tensor, 4);
}

// One cell as a colored space: gray for -inf, red for NaN and +inf, otherwise from dark purple
// (low) to yellow (high), the closest that 256-color terminals have to the figures' palette.
std::string colored_cell(double value, double low, double high, std::size_t cell_width) {
    static constexpr std::array palette = {53, 54, 60, 30, 36, 72, 77, 148, 220};
    int color = 238;
    if (std::isnan(value) || value == infinity) {
        color = 160;
    } else if (value > -infinity) {
        const double scaled = high > low ? (value - low) / (high - low) : 0.5;
        color = palette[static_cast<std::size_t>(std::lround(scaled * (palette.size() - 1)))];
    }
    return fmt::format("\x1b[48;5;{}m{}\x1b[0m", color, std::string(cell_width, ' '));
}

// Appends a heatmap: the cells of each row to the right of its printed line, if each row is one
// line and the terminal is wide enough.
template <class T, std::size_t N>
void append_heatmap(const xt::xtensor<T, N>& tensor, std::vector<std::string>& lines) {
    if (N < 2 || tensor.size() < 2 || !colors_wanted()) return;
    const std::size_t columns = tensor.shape()[N - 1];
    if (columns == 0 || lines.size() * columns != tensor.size()) return;

    std::size_t text_width = 0;
    for (const std::string& line : lines) text_width = std::max(text_width, line.size());
    const std::size_t free_width =
        terminal_width() - std::min(terminal_width(), text_width + 2);
    const std::size_t cell_width = 2 * columns <= free_width ? 2 : 1;
    if (columns * cell_width > free_width) return;

    double low = infinity, high = -infinity;
    for (const T number : tensor) {
        const double value = static_cast<double>(number);
        if (!std::isfinite(value)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
    }
    auto number = tensor.begin();
    for (std::string& line : lines) {
        line.append(text_width + 2 - line.size(), ' ');
        for (std::size_t column = 0; column < columns; ++column, ++number)
            line += colored_cell(static_cast<double>(*number), low, high, cell_width);
    }
}

template <class T, std::size_t N>
void save(std::string_view name, const xt::xtensor<T, N>& tensor) {
    write_file(save_folder / fmt::format("{}.npy", name),
               [&](std::ostream& stream) { stream << xt::dump_npy(tensor); });
}

template <class T, std::size_t N>
void print(const xt::xtensor<T, N>& tensor) {
    std::vector<std::string> lines = printed_lines(tensor);
    append_heatmap(tensor, lines);
    for (const std::string& line : lines) std::cout << line << '\n';
}

template <class T, std::size_t N>
void show_tensor(std::string_view name, const xt::xtensor<T, N>& tensor) {
    if (!shown_names.emplace(name).second)
        throw std::logic_error(fmt::format("show: {} was shown before", name));
    std::cout << name << ": " << to_text(tensor.shape());
    const bool too_long = N == 4 && tensor.size() > summary_threshold;
    std::cout << (too_long ? ", of which (0, 0):\n" : "\n");
    if constexpr (N == 4) {  // print only the first matrix of a large tensor
        if (too_long) print(Matrix(xt::view(tensor, 0, 0)));
    }
    if (!too_long) print(tensor);
    if (!save_folder.empty()) save(name, tensor);
}

}  // namespace

void step(std::string_view title) {
    static bool first = true;
    if (pausing && !first && isatty(STDIN_FILENO)) {
        std::cout << "\n[Enter] " << std::flush;
        std::string ignored;
        std::getline(std::cin, ignored);
    }
    first = false;
    std::cout << '\n'
              << (colors_wanted() ? fmt::format("\x1b[1;36m── {} ──\x1b[0m", title)
                                  : fmt::format("── {} ──", title))
              << std::endl;
}

void say(std::string_view text) {
    const std::size_t width = std::min<std::size_t>(terminal_width(), 80);
    std::istringstream words{std::string(text)};
    std::string line;
    for (std::string word; words >> word;) {
        if (!line.empty() && line.size() + 1 + word.size() > width) {
            std::cout << line << '\n';
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    std::cout << line << '\n';
}

void show(std::string_view name, const Vector& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const Matrix& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const Tensor3& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const Tensor4& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const IdVector& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const IdMatrix& tensor) { show_tensor(name, tensor); }

void show(std::string_view name, std::string_view value) {
    std::cout << name << ": " << value << '\n';
}
void show(std::string_view name, double value) {
    std::cout << fmt::format("{}: {:g}\n", name, value);
}

void show_table(const TableRow& headings, const std::vector<TableRow>& rows) {
    const auto width_of = [](const std::string& cell) {  // in code points, not bytes
        return static_cast<std::size_t>(std::count_if(
            cell.begin(), cell.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
    };
    std::vector<std::size_t> widths(headings.size());
    std::vector<bool> numeric(headings.size(), true);
    for (std::size_t column = 0; column < headings.size(); ++column) {
        widths[column] = width_of(headings[column]);
        for (const TableRow& row : rows) {
            if (row.size() != headings.size())
                throw std::logic_error("show_table: a row does not fit the headings");
            widths[column] = std::max(widths[column], width_of(row[column]));
            if (row[column].find_first_not_of("0123456789.,+-e%>") != std::string::npos &&
                row[column] != "inf")
                numeric[column] = false;
        }
    }
    const auto print_row = [&](const TableRow& row) {
        std::string line;
        for (std::size_t column = 0; column < row.size(); ++column)
            line += numeric[column] ? fmt::format("{:>{}}  ", row[column], widths[column])
                                    : fmt::format("{:<{}}  ", row[column], widths[column]);
        std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
    };
    print_row(headings);
    for (const TableRow& row : rows) print_row(row);
}

void write_text(std::string_view piece) {
    unprinted_text += piece;
    std::cout << take_printable(unprinted_text, false) << std::flush;
}

void end_text() { std::cout << take_printable(unprinted_text, true) << std::endl; }

void show_progress(std::string_view line) {
    if (!isatty(STDOUT_FILENO)) return;
    std::string fitting;  // a line that wraps could not be overwritten
    std::size_t count = 0;
    for (const std::string& one : characters(std::string(line)))
        if (++count < terminal_width()) fitting += one;
    std::cout << "\r\x1b[2K" << fitting << std::flush;
}

std::string sparkline(std::span<const Real> values, std::size_t width) {
    static constexpr std::array bars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const std::size_t count = std::min(width, values.size());
    std::vector<double> means(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t begin = i * values.size() / count;
        const std::size_t end = (i + 1) * values.size() / count;
        for (std::size_t n = begin; n < end; ++n)
            means[i] += static_cast<double>(values[n]) / static_cast<double>(end - begin);
    }
    double low = infinity, high = -infinity;
    for (const double mean : means) {
        if (!std::isfinite(mean)) continue;
        low = std::min(low, mean);
        high = std::max(high, mean);
    }
    std::string line;
    for (const double mean : means) {
        const double scaled = high > low ? (mean - low) / (high - low) : 0;
        line += std::isfinite(mean)
                    ? bars[static_cast<std::size_t>(std::lround(scaled * (bars.size() - 1)))]
                    : " ";
    }
    return line;
}

std::string with_commas(std::size_t number) {
    std::string text = std::to_string(number);
    for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
    return text;
}

std::string fixed(double number, int decimals) {
    return fmt::format("{:.{}f}", number, decimals);
}

std::string brief(double number) { return fmt::format("{:g}", number); }

void save_shown_tensors(const std::filesystem::path& folder) { save_folder = folder; }
void pause_between_steps() { pausing = true; }

}  // namespace llm
