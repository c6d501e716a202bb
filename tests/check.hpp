// What the tests compare with: a comparator that says where two tensors differ, fixtures that
// PyTorch wrote, and tensors whose every element carries its origin.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "common/tensors/tensor.hpp"

namespace llm {

// Empty if shapes are equal and |actual - expected| <= tolerance * max(1, max |expected|)
// everywhere. Equal infinities are equal; NaN equals nothing. Else it names the shapes, the
// worst element's index, both values there and the largest difference.
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

// Reads a .npy file; throws with the file's name if its type or number of axes is another.
template <std::size_t N>
xt::xtensor<Real, N> load_tensor(const std::string& file);
template <std::size_t N>
xt::xtensor<Id, N> load_ids(const std::string& file);

// The file or folder tests/fixtures/NAME, and what tests/fixtures/NAME.npy holds.
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

// 0, 1, 2, ... in reading order.
template <std::size_t N>
xt::xtensor<Real, N> counting(const std::size_t (&shape)[N]) {
    xt::xtensor<Real, N> result(std::to_array(shape));
    for (std::size_t i = 0; i < result.size(); ++i) result.data()[i] = static_cast<Real>(i);
    return result;
}

// All indices of a shape in reading order, for loops with structured bindings.
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

// {1, 2, 3}
template <>
struct StringMaker<std::vector<llm::Id>> {
    static String convert(const std::vector<llm::Id>& ids) {
        std::string text;
        for (const llm::Id id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
        return ("{" + text + "}").c_str();
    }
};

}  // namespace doctest

// CHECK_CLOSE goes on after a failure, REQUIRE_CLOSE ends the test case.
#define CHECK_CLOSE(actual, expected, tolerance) \
    LLM_CLOSE(CHECK_MESSAGE, actual, expected, tolerance)
#define REQUIRE_CLOSE(actual, expected, tolerance) \
    LLM_CLOSE(REQUIRE_MESSAGE, actual, expected, tolerance)
#define LLM_CLOSE(check, actual, expected, tolerance)                             \
    do {                                                                          \
        const std::string llm_gap = llm::difference(actual, expected, tolerance); \
        check(llm_gap.empty(), #actual ": ", llm_gap);                            \
    } while (false)
