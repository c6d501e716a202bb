// Helpers of the tests: a comparison that reports where two tensors differ, fixtures written by
// PyTorch, and tensors in which each element's value is its index.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "common/tensors/tensor.hpp"

namespace llm {

// Compares two tensors. Returns an empty string if the shapes are equal and every element has
// |actual - expected| <= tolerance * max(1, max |expected|). Equal infinities are equal; NaN is
// equal to nothing. Otherwise returns a message with the shapes, the index of the worst
// element, both values there and the largest difference.
std::string difference(std::span<const std::size_t> actual_shape, const Real* actual,
                       std::span<const std::size_t> expected_shape, const Real* expected,
                       double tolerance);

template <std::size_t M, std::size_t N>
std::string difference(const xt::xtensor<Real, M>& actual, const xt::xtensor<Real, N>& expected,
                       double tolerance) {
    return difference(actual.shape(), actual.data(), expected.shape(), expected.data(),
                      tolerance);
}

template <std::size_t N>
std::string difference(const xt::xtensor<Id, N>& actual, const xt::xtensor<Id, N>& expected,
                       double tolerance) {
    return difference(xt::xtensor<Real, N>(actual), xt::xtensor<Real, N>(expected), tolerance);
}

// Fails the test case, at that line, if there is a difference.
struct CheckLocation {
    const char* file;
    int line;
    doctest::assertType::Enum type;
};
void check_difference(const std::string& difference, const char* expression,
                      const CheckLocation& location);

// Reads a .npy file. Throws an error that names the file if its type or rank differs.
template <std::size_t N>
xt::xtensor<Real, N> load_tensor(const std::string& file);
template <std::size_t N>
xt::xtensor<Id, N> load_ids(const std::string& file);

// The path of tests/fixtures/NAME or tests/fixtures/NAME.npy, and the tensor in the latter.
std::string fixture_path(const std::string& name);
std::string fixture_file(const std::string& name);
template <std::size_t N>
xt::xtensor<Real, N> fixture(const std::string& name) {
    return load_tensor<N>(fixture_file(name));
}
template <std::size_t N>
xt::xtensor<Id, N> id_fixture(const std::string& name) {
    return load_ids<N>(fixture_file(name));
}

// 0, 1, 2, ... in row-major order, as torch.arange(n).view(shape).
template <std::size_t N>
xt::xtensor<Real, N> counting(const std::size_t (&shape)[N]) {
    xt::xtensor<Real, N> result(std::to_array(shape));
    for (std::size_t i = 0; i < result.size(); ++i) result.data()[i] = static_cast<Real>(i);
    return result;
}

// All indices of a shape in row-major order, for loops with structured bindings.
template <class... Sizes>
std::vector<std::array<std::size_t, sizeof...(Sizes)>> every_index(Sizes... sizes) {
    const std::array<std::size_t, sizeof...(Sizes)> shape{static_cast<std::size_t>(sizes)...};
    std::vector<std::array<std::size_t, sizeof...(Sizes)>> indices;
    for (std::size_t flat = 0; flat < element_count(shape); ++flat) {
        auto& index = indices.emplace_back();
        for (std::size_t axis = shape.size(), rest = flat; axis-- > 0; rest /= shape[axis])
            index[axis] = rest % shape[axis];
    }
    return indices;
}

}  // namespace llm

namespace doctest {

// INFO(condition ? "a" : "b") shows the text, not a pointer.
template <>
struct StringMaker<const char*> {
    static String convert(const char* text) { return text; }
};

// A shape: (2, 3)
template <std::size_t N>
struct StringMaker<std::array<std::size_t, N>> {
    static String convert(const std::array<std::size_t, N>& shape) {
        return llm::to_text(shape).c_str();
    }
};

// {1, 2, 3}
template <class T>
struct StringMaker<std::vector<T>> {
    static String convert(const std::vector<T>& elements) {
        String text;
        for (const T& element : elements)
            text += (text.size() == 0 ? String() : String(", ")) + toString(element);
        return "{" + text + "}";
    }
};

}  // namespace doctest

// After a failure, CHECK_CLOSE continues the test case and REQUIRE_CLOSE ends it.
#define CHECK_CLOSE(actual, expected, tolerance) \
    LLM_CLOSE(actual, expected, tolerance, doctest::assertType::is_check)
#define REQUIRE_CLOSE(actual, expected, tolerance) \
    LLM_CLOSE(actual, expected, tolerance, doctest::assertType::is_require)
#define LLM_CLOSE(actual, expected, tolerance, type)                             \
    llm::check_difference(llm::difference(actual, expected, tolerance), #actual, \
                          {__FILE__, __LINE__, type})
