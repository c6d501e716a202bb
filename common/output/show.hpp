// What a notebook's print does: headings, names with shapes, tensors in xtensor's own print,
// and small colour heatmaps beside the rows when the output is a terminal.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// Starts a step of the walk: a heading, and with --step a pause before it.
void step(std::string_view title);

// Prints narration, broken into lines of at most 80 characters.
void say(std::string_view text);

// Prints "name: (shape)" and the tensor. With --save it also writes NAME.npy; a name may
// therefore be shown only once in a program (throws std::logic_error).
void show(std::string_view name, const Vector& tensor);
void show(std::string_view name, const Matrix& tensor);
void show(std::string_view name, const Tensor3& tensor);
void show(std::string_view name, const Tensor4& tensor);
void show(std::string_view name, const IdVector& tensor);
void show(std::string_view name, const IdMatrix& tensor);

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

// Prints "name: (shape)" alone.
template <class T, std::size_t N>
void show_shape(std::string_view name, const xt::xtensor<T, N>& tensor) {
    show(name, std::string_view(to_text(tensor.shape())));
}

// Prints rows under their headings; columns of numbers are aligned on the right. Throws
// std::logic_error unless every row has as many cells as there are headings.
using TableRow = std::vector<std::string>;
void show_table(const TableRow& headings, const std::vector<TableRow>& rows);

// Prints a text as it comes, piece by piece, at once. A character whose bytes come in several
// pieces is printed when it is whole; what could move a terminal's cursor becomes "?".
void write_text(std::string_view piece);
void end_text();  // and its line

// Shows how far a long computation is, on one line that the next call replaces; an empty one
// removes it. Only in a terminal; elsewhere it prints nothing.
void show_progress(std::string_view line);

// A small curve: "▇▅▄▃▃▂▂▁", at most so many characters, each the mean of its share of the
// numbers; a space if that is not finite.
std::string sparkline(std::span<const Real> numbers, std::size_t width);

// For cells: 12345678 as "12,345,678", 2 / 3 with 2 decimals as "0.67", 3e38 as "3e+38".
std::string with_commas(std::size_t number);
std::string fixed(double number, int decimals);
std::string brief(double number);  // at most six digits

// Settings that the options --save and --step make.
void save_shown_tensors(const std::filesystem::path& folder);
void pause_between_steps();

}  // namespace llm
