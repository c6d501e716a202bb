// Checks of arguments. A failed check throws ValueError with one line that names the function,
// what it expected and what it got; for shapes, both of them.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

// An argument that a function cannot take: shapes that do not fit, a size of 0, a setting out
// of range. (Python's name, which NumPy and Hugging Face use.)
struct ValueError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// "(2, 10, 128)"; the shape of a vector is "(128,)", as in Python.
std::string to_text(std::span<const std::size_t> shape);

template <std::size_t N>
std::string to_text(const std::array<std::size_t, N>& shape) {
    return to_text(std::span<const std::size_t>(shape));
}
inline std::string to_text(std::integral auto value) { return std::to_string(value); }
inline std::string to_text(std::string_view text) { return std::string(text); }

// Throws ValueError with the message, in which each {} is replaced by the next argument.
[[noreturn]] void throw_value_error(std::string_view message,
                                    const std::vector<std::string>& arguments);

// Throws ValueError with the formatted message if the condition is false.
template <class... Arguments>
void require(bool condition, std::string_view message, const Arguments&... arguments) {
    if (!condition) throw_value_error(message, {to_text(arguments)...});
}

// The number of elements of a tensor with this shape: the product of its sizes.
inline std::size_t element_count(std::span<const std::size_t> shape) {
    std::size_t count = 1;
    for (const std::size_t size : shape) count *= size;
    return count;
}

}  // namespace llm
