// The tensors of this project: xtensor's containers under short names, a checked reshape, and
// operators that check shapes. Chapters take xtensor from here and nowhere else.
#pragma once

#if __has_include(<xtensor/containers/xtensor.hpp>)  // xtensor 0.26 moved its headers
#include <xtensor/containers/xtensor.hpp>
#include <xtensor/core/xmath.hpp>
#include <xtensor/generators/xbuilder.hpp>
#include <xtensor/misc/xmanipulation.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
#endif
#include <xtensor-blas/xlinalg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/tensors/real.hpp"
#include "common/tensors/shape.hpp"

namespace llm {

using Vector = xt::xtensor<Real, 1>;
using Matrix = xt::xtensor<Real, 2>;
using Tensor3 = xt::xtensor<Real, 3>;
using Tensor4 = xt::xtensor<Real, 4>;

// Token ids, position ids and lengths are whole numbers (PyTorch's int64).
using Id = std::int64_t;
using IdVector = xt::xtensor<Id, 1>;
using IdMatrix = xt::xtensor<Id, 2>;

inline constexpr Real infinity = std::numeric_limits<Real>::infinity();

// The sizes of a tensor, to be unpacked: const auto [batch_size, seq_len] = dims(ids);
template <class T, std::size_t N>
std::array<std::size_t, N> dims(const xt::xtensor<T, N>& tensor) {
    return tensor.shape();
}

// The same numbers in the same order under another shape. Unlike xtensor's own reshape_view
// it checks the number of elements; throws ShapeError with both shapes.
template <class T, std::size_t M, std::size_t N>
xt::xtensor<T, N> reshape(const xt::xtensor<T, M>& tensor, const std::size_t (&shape)[N]) {
    const std::array<std::size_t, N> sizes = std::to_array(shape);
    require(element_count(sizes) == tensor.size(), "reshape: {} does not fit into {}",
            tensor.shape(), sizes);
    xt::xtensor<T, N> result(sizes);
    std::copy(tensor.begin(), tensor.end(), result.begin());
    return result;
}

// Arithmetic on whole tensors, and of a tensor with a number. xtensor's own operators return a
// recipe, do not check shapes, and are compiled anew in every file. These compute at once,
// throw ShapeError unless the shapes fit (axes of size 1 stretch), and are compiled in
// tensor.cpp.
namespace arithmetic {

template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> subtract(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, Real number);
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, Real number);
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, Real number);

template <class T>
inline constexpr std::size_t axes = 0;
template <std::size_t N>
inline constexpr std::size_t axes<xt::xtensor<Real, N>> = N;
template <class T>
concept Tensor = axes<std::remove_cvref_t<T>>
!= 0;
template <class A, class B>
concept SameRank = Tensor<A> && axes<std::remove_cvref_t<A>>
== axes<std::remove_cvref_t<B>>;

}  // namespace arithmetic

template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator+(A&& a, B&& b) { return arithmetic::add(a, b); }
template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator-(A&& a, B&& b) { return arithmetic::subtract(a, b); }
template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator*(A&& a, B&& b) { return arithmetic::multiply(a, b); }
template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator/(A&& a, B&& b) { return arithmetic::divide(a, b); }
template <arithmetic::Tensor A>
auto operator+(A&& a, Real number) {
    return arithmetic::add(a, number);
}
template <arithmetic::Tensor A>
auto operator-(A&& a, Real number) {
    return arithmetic::add(a, -number);
}
template <arithmetic::Tensor A>
auto operator*(A&& a, Real number) {
    return arithmetic::multiply(a, number);
}
template <arithmetic::Tensor A>
auto operator/(A&& a, Real number) {
    return arithmetic::divide(a, number);
}

}  // namespace llm
