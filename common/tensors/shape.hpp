// Checks that throw one clear line: what, where, expected, got.
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

// Sizes that do not fit together.
struct ShapeError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// "(2, 10, 128)"; a shape of one axis is "(128,)", as in Python.
std::string to_text(std::span<const std::size_t> shape);

template <std::size_t N>
std::string to_text(const std::array<std::size_t, N>& shape) {
    return to_text(std::span<const std::size_t>(shape));
}
inline std::string to_text(std::integral auto number) { return std::to_string(number); }
inline std::string to_text(std::string_view text) { return std::string(text); }

// Throws ShapeError with the message; each {} stands for the next argument.
[[noreturn]] void throw_shape_error(std::string_view message,
                                    const std::vector<std::string>& arguments);

template <class... Arguments>
void require(bool condition, std::string_view message, const Arguments&... arguments) {
    if (!condition) throw_shape_error(message, {to_text(arguments)...});
}

// The number of elements that a shape holds.
inline std::size_t element_count(std::span<const std::size_t> shape) {
    std::size_t count = 1;
    for (const std::size_t size : shape) count *= size;
    return count;
}

}  // namespace llm
