// Output of the programs: step headings, names with shapes, tensors in xtensor's print format,
// tables, and, in a terminal, a small color heatmap to the right of each row or, for attention
// weights and masks that leave no room for it, colored numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// Starts a step of the program: prints a heading, with the step's number in a terminal. With
// --step it waits for Enter first; with --only the run ends after the step with that number.
void step(std::string_view title);

// Prints a paragraph of explanation, wrapped at 80 characters.
void say(std::string_view text);

// Prints "name: (shape)" and the tensor. With --save it also writes NAME.npy. Each name can be
// shown only once in a program: throws std::logic_error if it was shown before.
void show(std::string_view name, const Vector& tensor);
void show(std::string_view name, const Matrix& tensor);
void show(std::string_view name, const Tensor3& tensor);
void show(std::string_view name, const Tensor4& tensor);
void show(std::string_view name, const IdVector& tensor);
void show(std::string_view name, const IdMatrix& tensor);

// The same as a table whose rows and first columns have names, with two decimals. Throws
// std::logic_error unless there is a name for each row and a column for each name.
void show(std::string_view name, const Matrix& matrix, const std::vector<std::string>& rows,
          const std::vector<std::string>& columns);

// Prints "name: value".
void show(std::string_view name, std::string_view value);
void show(std::string_view name, double value);
inline void show(std::string_view name, const char* value) {
    show(name, std::string_view(value));
}
inline void show(std::string_view name, bool value) {
    show(name, std::string_view(value ? "true" : "false"));
}
void show(std::string_view name, std::integral auto value) {
    show(name, std::string_view(to_text(value)));
}

// Prints "name: (shape)" without the elements.
template <class T, std::size_t N>
void show_shape(std::string_view name, const xt::xtensor<T, N>& tensor) {
    show(name, std::string_view(to_text(tensor.shape())));
}

// Prints a table. Numeric columns are right-aligned. Throws std::logic_error unless each row
// has as many cells as there are headings.
using TableRow = std::vector<std::string>;
void show_table(const TableRow& headings, const std::vector<TableRow>& rows);

// Prints a part of a streamed text immediately, also with --quiet. A UTF-8 character that is
// split across parts is printed when it is complete; control characters that could move the
// cursor become "?".
void write_text(std::string_view piece);
void end_text();  // prints the incomplete rest and ends the line

// Prints a line about the run, such as a warning, on standard error.
void note(std::string_view line);

// Shows the progress of a long computation on one line, which the next call overwrites; an
// empty text clears it. Prints nothing with --quiet or if the output is not a terminal.
void show_progress(std::string_view line);

// A curve of at most `width` characters, such as "▇▅▄▃▃▂▂▁". Each character is the mean of an
// equal part of the values, or a space if that mean is not finite.
std::string sparkline(std::span<const Real> values, std::size_t width);

// Formats numbers for table cells: 12345678 as "12,345,678", 2 / 3 with 2 decimals as "0.67",
// 3e38 as "3e+38".
std::string with_commas(std::uint64_t number);
std::string fixed(double number, int decimals);
std::string brief(double number);  // at most six significant digits
// The fewest digits that are read as the same number: 0.1f as "0.1".
std::string round_trip(float number);
std::string round_trip(double number);

// Called by Options for --save.
void save_shown_tensors(const std::filesystem::path& folder);

}  // namespace llm
