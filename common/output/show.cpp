#include "common/output/show.hpp"

#include <iostream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/events.hpp"
#include "common/output/tensor_lines.hpp"
#include "common/output/terminal.hpp"
#include "common/tensors/tensor_io.hpp"

namespace llm {
namespace {

std::filesystem::path save_folder;  // empty: nothing is saved
std::set<std::string, std::less<>> shown_names;
std::string unprinted_text;  // the incomplete character at the end of write_text's input

constexpr std::size_t json_threshold = 65536;  // larger tensors have no values in JSON

// Appends a heatmap: the cells of each row to the right of its printed line. Returns false if a
// row is not one line or the terminal is not wide enough.
template <class T, std::size_t N>
bool append_heatmap(const xt::xtensor<T, N>& tensor, const ColorScale& scale,
                    std::vector<std::string>& lines) {
    const std::size_t columns = tensor.shape()[N - 1];
    if (lines.size() * columns != tensor.size()) return false;

    std::size_t text_width = 0;
    for (const std::string& line : lines) text_width = std::max(text_width, line.size());
    const std::size_t free_width =
        terminal_width() - std::min(terminal_width(), text_width + 2);
    const std::size_t cell_width = 2 * columns <= free_width ? 2 : 1;
    if (columns * cell_width > free_width) return false;

    const std::string space(cell_width, ' ');
    auto number = tensor.begin();
    for (std::string& line : lines) {
        line.append(text_width + 2 - line.size(), ' ');
        for (std::size_t column = 0; column < columns; ++column, ++number)
            line += scale.cell(static_cast<double>(*number), space);
    }
    return true;
}

// Whether these can be attention weights, a mask or masked scores: all elements are in [0, 1],
// or some are -inf.
template <class T>
bool is_weights_or_mask(const ColorScale& scale) {
    const bool weights = scale.low >= 0 && scale.high <= 1 && scale.low < scale.high;
    return std::is_same_v<T, Real> && (weights || scale.has_minus_infinity);
}

// Colors the background of each number from character `start` on.
std::string color_numbers(const std::string& line, const ColorScale& scale,
                          std::size_t start = 0) {
    std::string colored = line.substr(0, start);
    const std::string text = line.substr(start);
    std::size_t copied = 0;
    for_each_number(text, [&](std::size_t begin, std::size_t end, std::size_t padding) {
        begin -= padding;
        const std::size_t next = text.find_first_not_of(' ', end);
        if (next != text.npos && (text[next] == ',' || text[next] == '}')) end = next;
        colored.append(text, copied, begin - copied);
        const std::string number = text.substr(begin, end - begin);
        colored += scale.cell(std::strtod(number.c_str(), nullptr), number);
        copied = end;
    });
    return colored + text.substr(copied);
}

// The heading, followed by the legend if it fits.
std::string with_legend(const std::string& heading, const ColorScale& scale) {
    const std::string legend = scale.legend();
    const bool fits = heading.size() + 2 + visible_width(legend) <= terminal_width();
    return heading + (fits ? "  " : "\n") + legend;
}

// In a terminal, adds colors: a heatmap at the right if it fits; otherwise attention weights,
// masks and masked scores have colored numbers.
template <class T, std::size_t N>
void add_colors(const xt::xtensor<T, N>& tensor, std::string& heading,
                std::vector<std::string>& lines) {
    // Ids are names, not quantities.
    if (std::is_same_v<T, Id> || N < 2 || tensor.size() < 2 || !colors_wanted()) return;
    const ColorScale scale = scale_of(tensor);
    if (scale.low == scale.high && !scale.has_minus_infinity) return;
    if (!append_heatmap(tensor, scale, lines)) {
        if (!is_weights_or_mask<T>(scale)) return;
        for (std::string& line : lines) line = color_numbers(line, scale);
    }
    heading = with_legend(heading, scale);
}

template <class T, std::size_t N>
void save(std::string_view name, const xt::xtensor<T, N>& tensor) {
    write_file(save_folder / fmt::format("{}.npy", name),
               [&](std::ostream& stream) { stream << xt::dump_npy(tensor); });
}

template <class T, std::size_t N>
void print_tensor(std::string heading, const xt::xtensor<T, N>& tensor) {
    std::vector<std::string> lines = printed_lines(tensor);
    add_colors(tensor, heading, lines);
    print(heading + "\n");
    for (const std::string& line : lines) print(line + "\n");
}

// Saves the tensor. Returns the heading, "name: (shape)".
template <class T, std::size_t N>
std::string save_and_describe(std::string_view name, const xt::xtensor<T, N>& tensor) {
    if (!shown_names.emplace(name).second)
        throw std::logic_error(fmt::format("show: {} was shown before", name));
    if (!save_folder.empty() && step_is_printed()) save(name, tensor);
    return fmt::format("{}: {}", name, to_text(tensor.shape()));
}

template <class T, std::size_t N>
void emit_tensor(std::string_view name, const xt::xtensor<T, N>& tensor,
                 const std::vector<std::string>& lines, const JsonMembers& names = {}) {
    JsonMembers members{
        {"name", std::string(name)},
        {"shape", std::vector<std::size_t>(tensor.shape().begin(), tensor.shape().end())}};
    if (tensor.size() <= json_threshold) {
        if constexpr (std::is_same_v<T, Real>)
            members.emplace_back("values", shortest_decimals({tensor.data(), tensor.size()}));
        else
            members.emplace_back("values", std::vector<double>(tensor.begin(), tensor.end()));
    }
    members.insert(members.end(), names.begin(), names.end());
    members.emplace_back("printed", fmt::format("{}", fmt::join(lines, "\n")));
    emit("tensor", std::move(members));
}

// Prints only the first matrix of a large Tensor4.
template <class T, std::size_t N>
void show_tensor(std::string_view name, const xt::xtensor<T, N>& tensor) {
    const std::string heading = save_and_describe(name, tensor);
    if constexpr (N == 4) {
        if (tensor.size() > summary_threshold) {
            const Matrix first = xt::view(tensor, 0, 0);
            if (print_options().json) return emit_tensor(name, tensor, printed_lines(first));
            return print_tensor(heading + ", of which (0, 0):", first);
        }
    }
    if (print_options().json) return emit_tensor(name, tensor, printed_lines(tensor));
    print_tensor(heading, tensor);
}

// The lines of a table, the first with the headings.
std::vector<std::string> table_lines(const TableRow& headings,
                                     const std::vector<TableRow>& rows) {
    std::vector<std::size_t> widths(headings.size());
    std::vector<bool> numeric(headings.size(), true);
    for (std::size_t column = 0; column < headings.size(); ++column) {
        widths[column] = visible_width(headings[column]);
        for (const TableRow& row : rows) {
            if (row.size() != headings.size())
                throw std::logic_error("show_table: a row does not fit the headings");
            widths[column] = std::max(widths[column], visible_width(row[column]));
            if (row[column].find_first_not_of("0123456789.,+-e%>") != std::string::npos &&
                row[column] != "inf" && row[column] != "-inf")
                numeric[column] = false;
        }
    }
    const auto line_of = [&](const TableRow& row) {
        std::string line;
        for (std::size_t column = 0; column < row.size(); ++column)
            line += numeric[column] ? fmt::format("{:>{}}  ", row[column], widths[column])
                                    : fmt::format("{:<{}}  ", row[column], widths[column]);
        return line.substr(0, line.find_last_not_of(' ') + 1);
    };
    std::vector<std::string> lines = {line_of(headings)};
    for (const TableRow& row : rows) lines.push_back(line_of(row));
    return lines;
}

// Prints a table of a matrix; in a terminal, attention weights, masks and masked scores have
// colored numbers.
void print_named(std::string heading, const ColorScale& scale,
                 const std::vector<std::string>& names, std::vector<std::string> lines) {
    if (colors_wanted() && is_weights_or_mask<Real>(scale)) {
        heading = with_legend(heading, scale);
        std::size_t widest = 0;
        for (const std::string& name : names) widest = std::max(widest, visible_width(name));
        for (std::size_t i = 0; i < names.size(); ++i)
            lines[i + 1] = color_numbers(lines[i + 1], scale,
                                         widest + names[i].size() - visible_width(names[i]));
    }
    print(heading + "\n");
    for (const std::string& line : lines) print(line + "\n");
}

void print_generated(const std::string& text) {
    if (print_options().json) return emit("generated", {{"text", text}});
    print_generated_text(text);
    std::cout << std::flush;
}

}  // namespace

void step(std::string_view title) { begin_step(title); }

void say(std::string_view text) {
    if (print_options().json) return emit("text", {{"text", std::string(text)}});
    const std::size_t width = std::min<std::size_t>(terminal_width(), 80);
    std::istringstream words{std::string(text)};
    std::string line;
    for (std::string word; words >> word;) {
        if (!line.empty() && line.size() + 1 + word.size() > width) {
            print(line + "\n");
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    print(line + "\n");
}

void show(std::string_view name, const Vector& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const Matrix& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const Matrix& matrix, const std::vector<std::string>& rows,
          const std::vector<std::string>& columns) {
    if (matrix.shape(0) != rows.size() || matrix.shape(1) < columns.size())
        throw std::logic_error(fmt::format("show: {} does not have these names", name));
    TableRow headings{""};
    headings.insert(headings.end(), columns.begin(), columns.end());
    std::vector<TableRow> cells;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        cells.push_back({rows[i]});
        for (std::size_t j = 0; j < columns.size(); ++j)
            cells.back().push_back(
                fmt::format("{:.2f}", std::abs(matrix(i, j)) < 0.005 ? 0 : matrix(i, j)));
    }
    const std::string heading = save_and_describe(name, matrix);
    const std::vector<std::string> lines = table_lines(headings, cells);
    if (print_options().json)
        return emit_tensor(name, matrix, lines, {{"rows", rows}, {"columns", columns}});
    print_named(heading, scale_of(matrix), rows, lines);
}
void show(std::string_view name, const Tensor3& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const Tensor4& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const IdVector& tensor) { show_tensor(name, tensor); }
void show(std::string_view name, const IdMatrix& tensor) { show_tensor(name, tensor); }

void show(std::string_view name, std::string_view value) {
    if (print_options().json)
        return emit("value", {{"name", std::string(name)}, {"text", std::string(value)}});
    print(fmt::format("{}: {}\n", name, value));
}
void show(std::string_view name, double value) { show(name, brief(value)); }

void show_table(const TableRow& headings, const std::vector<TableRow>& rows) {
    const std::vector<std::string> lines = table_lines(headings, rows);
    if (print_options().json) return emit("table", {{"headings", headings}, {"rows", rows}});
    for (const std::string& line : lines) print(line + "\n");
}

void write_text(std::string_view piece) {
    unprinted_text += piece;
    print_generated(take_printable(unprinted_text, false));
}

void end_text() { print_generated(take_printable(unprinted_text, true) + "\n"); }

void note(std::string_view line) {
    std::cout << std::flush;
    std::cerr << line << '\n';
}

void show_progress(std::string_view line) {
    if (print_options().json) return emit("progress", {{"text", std::string(line)}});
    if (!output_is_terminal() || print_options().quiet) return;
    std::string fitting;  // a line that wraps could not be overwritten
    std::size_t count = 0;
    for (const std::string& one : characters(std::string(line)))
        if (++count < terminal_width()) fitting += one;
    std::cout << "\r\x1b[2K" << fitting << std::flush;
}

void save_shown_tensors(const std::filesystem::path& folder) { save_folder = folder; }

}  // namespace llm
