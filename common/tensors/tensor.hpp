// The tensor types of this project: short names for xtensor's containers, a reshape that checks
// sizes, and operators that check shapes. Chapters include xtensor only through this header.
#pragma once

#include "common/tensors/aligned_allocator.hpp"

#define XTENSOR_DEFAULT_ALLOCATOR(T) llm::AlignedAllocator<T>  // before xtensor is included
#if __has_include(<xtensor/containers/xtensor.hpp>)            // xtensor 0.26 moved its headers
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

// Token ids, position ids and sequence lengths are 64-bit integers (PyTorch's int64).
using Id = std::int64_t;
using IdVector = xt::xtensor<Id, 1>;
using IdMatrix = xt::xtensor<Id, 2>;

inline constexpr Real infinity = std::numeric_limits<Real>::infinity();

// The sizes of a tensor, for structured bindings: const auto [batch_size, seq_len] = dims(ids);
template <class T, std::size_t N>
std::array<std::size_t, N> dims(const xt::xtensor<T, N>& tensor) {
    return tensor.shape();
}

// Returns the same elements in the same row-major order with another shape, like PyTorch's
// view. Unlike xtensor's reshape_view, it checks the number of elements: throws ValueError with
// both shapes if it differs.
template <class T, std::size_t M, std::size_t N>
xt::xtensor<T, N> reshape(const xt::xtensor<T, M>& tensor, const std::size_t (&shape)[N]) {
    const std::array<std::size_t, N> sizes = std::to_array(shape);
    require(element_count(sizes) == tensor.size(), "reshape: cannot reshape {} to {}",
            tensor.shape(), sizes);
    xt::xtensor<T, N> result(sizes);
    std::copy(tensor.begin(), tensor.end(), result.begin());
    return result;
}

// The overload for a temporary tensor: the memory is moved, not copied.
template <class T, std::size_t M, std::size_t N>
xt::xtensor<T, N> reshape(xt::xtensor<T, M>&& tensor, const std::size_t (&shape)[N]) {
    using Result = xt::xtensor<T, N>;
    const std::array<std::size_t, N> sizes = std::to_array(shape);
    require(element_count(sizes) == tensor.size(), "reshape: cannot reshape {} to {}",
            tensor.shape(), sizes);
    typename Result::inner_strides_type strides{};
    xt::compute_strides(sizes, xt::layout_type::row_major, strides);
    typename Result::inner_shape_type inner_shape = sizes;
    return Result(std::move(tensor.storage()), std::move(inner_shape), std::move(strides));
}

// Elementwise arithmetic on two tensors, or on a tensor and a scalar. xtensor's own operators
// return a lazy expression, do not check shapes, and are instantiated in every file that uses
// them. These evaluate immediately, broadcast axes of size 1, throw ValueError if the shapes
// cannot be broadcast, and are instantiated once, in tensor.cpp. If the left side is a
// temporary tensor, its memory becomes that of the result.
namespace arithmetic {

template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> add(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> subtract(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> subtract(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> multiply(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> divide(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b);
template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, Real scalar);
template <std::size_t N>
xt::xtensor<Real, N> add(xt::xtensor<Real, N>&& a, Real scalar);
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, Real scalar);
template <std::size_t N>
xt::xtensor<Real, N> multiply(xt::xtensor<Real, N>&& a, Real scalar);
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, Real scalar);
template <std::size_t N>
xt::xtensor<Real, N> divide(xt::xtensor<Real, N>&& a, Real scalar);

template <class T>
inline constexpr std::size_t rank = 0;
template <std::size_t N>
inline constexpr std::size_t rank<xt::xtensor<Real, N>> = N;
template <class T>
concept Tensor = (rank<std::remove_cvref_t<T>> != 0);
template <class A, class B>
concept SameRank = Tensor<A> &&(rank<std::remove_cvref_t<A>> == rank<std::remove_cvref_t<B>>);

}  // namespace arithmetic

template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator+(A&& a, B&& b) { return arithmetic::add(std::forward<A>(a), b); }
template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator-(A&& a, B&& b) { return arithmetic::subtract(std::forward<A>(a), b); }
template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator*(A&& a, B&& b) { return arithmetic::multiply(std::forward<A>(a), b); }
template <class A, class B>
requires arithmetic::SameRank<A, B>
auto operator/(A&& a, B&& b) { return arithmetic::divide(std::forward<A>(a), b); }
template <arithmetic::Tensor A>
auto operator+(A&& a, Real scalar) {
    return arithmetic::add(std::forward<A>(a), scalar);
}
template <arithmetic::Tensor A>
auto operator-(A&& a, Real scalar) {
    return arithmetic::add(std::forward<A>(a), -scalar);
}
template <arithmetic::Tensor A>
auto operator*(A&& a, Real scalar) {
    return arithmetic::multiply(std::forward<A>(a), scalar);
}
template <arithmetic::Tensor A>
auto operator/(A&& a, Real scalar) {
    return arithmetic::divide(std::forward<A>(a), scalar);
}

}  // namespace llm
