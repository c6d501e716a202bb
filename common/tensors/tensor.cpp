#include "common/tensors/tensor.hpp"

#include <functional>
#include <span>

namespace llm::arithmetic {
namespace {

template <std::size_t N>
void check_broadcastable(const char* symbol, const xt::xtensor<Real, N>& a,
                         const xt::xtensor<Real, N>& b) {
    for (std::size_t axis = 0; axis < N; ++axis) {
        const std::size_t i = a.shape(axis), j = b.shape(axis);
        require(i == j || i == 1 || j == 1, "{} {} {}: the shapes cannot be broadcast together",
                a.shape(), symbol, b.shape());
    }
}

// The last axis of a tensor, at one index of the other axes. The step is 0 for an axis of size
// 1, which is broadcast: the same element is used again.
struct Row {
    const Real* values;
    std::size_t step;
};

// result[i] = function(a[i], b[i]), as loops that the compiler vectorizes.
template <class Function>
void apply_to_row(Row a, Row b, std::span<Real> result, Function function) {
    if (a.step == 1 && b.step == 1)
        for (std::size_t i = 0; i < result.size(); ++i)
            result[i] = function(a.values[i], b.values[i]);
    else if (a.step == 1)
        for (std::size_t i = 0; i < result.size(); ++i)
            result[i] = function(a.values[i], *b.values);
    else
        for (std::size_t i = 0; i < result.size(); ++i)
            result[i] = function(*a.values, b.values[i]);
}

// a[i] = function(a[i], b[i])
template <class Function>
void update_row(std::span<Real> a, Row b, Function function) {
    if (b.step == 1)
        for (std::size_t i = 0; i < a.size(); ++i) a[i] = function(a[i], b.values[i]);
    else
        for (std::size_t i = 0; i < a.size(); ++i) a[i] = function(a[i], *b.values);
}

// Calls function for each index of the leading axes, with the offsets of that row in a and b.
// The stride of an axis of size 1 is 0.
template <std::size_t N, class Function>
void for_each_row(const std::array<std::size_t, N>& shape, const xt::xtensor<Real, N>& a,
                  const xt::xtensor<Real, N>& b, const Function& function) {
    std::size_t num_rows = 1;
    for (std::size_t axis = 0; axis + 1 < N; ++axis) num_rows *= shape[axis];
    for (std::size_t row = 0; row < num_rows; ++row) {
        std::size_t remainder = row, offset_a = 0, offset_b = 0;
        for (std::size_t axis = N - 1; axis-- > 0; remainder /= shape[axis]) {
            const std::size_t index = remainder % shape[axis];
            offset_a += index * static_cast<std::size_t>(a.strides()[axis]);
            offset_b += index * static_cast<std::size_t>(b.strides()[axis]);
        }
        function(row, offset_a, offset_b);
    }
}

template <std::size_t N, class Function>
xt::xtensor<Real, N> broadcast(const char* symbol, const xt::xtensor<Real, N>& a,
                               const xt::xtensor<Real, N>& b, Function function) {
    check_broadcastable(symbol, a, b);
    std::array<std::size_t, N> shape = a.shape();
    for (std::size_t axis = 0; axis < N; ++axis)
        if (shape[axis] == 1) shape[axis] = b.shape(axis);
    xt::xtensor<Real, N> result(shape);
    if (result.size() == 0) return result;
    if (a.shape() == b.shape()) {
        apply_to_row({a.data(), 1}, {b.data(), 1}, {result.data(), result.size()}, function);
        return result;
    }
    const std::size_t size = shape[N - 1];
    const std::size_t step_a = a.shape(N - 1) == 1 ? 0 : 1,
                      step_b = b.shape(N - 1) == 1 ? 0 : 1;
    for_each_row(shape, a, b, [&](std::size_t row, std::size_t offset_a, std::size_t offset_b) {
        apply_to_row({a.data() + offset_a, step_a}, {b.data() + offset_b, step_b},
                     {result.data() + row * size, size}, function);
    });
    return result;
}

// The same in the memory of a, if the result has the shape of a.
template <std::size_t N, class Function>
xt::xtensor<Real, N> broadcast(const char* symbol, xt::xtensor<Real, N>&& a,
                               const xt::xtensor<Real, N>& b, Function function) {
    for (std::size_t axis = 0; axis < N; ++axis)
        if (b.shape(axis) != a.shape(axis) && b.shape(axis) != 1)
            return broadcast(symbol, std::as_const(a), b, function);
    if (a.shape() == b.shape()) {
        update_row({a.data(), a.size()}, {b.data(), 1}, function);
    } else if (a.size() > 0) {
        const std::size_t size = a.shape(N - 1), step = b.shape(N - 1) == 1 ? 0 : 1;
        for_each_row(a.shape(), a, b, [&](std::size_t row, std::size_t, std::size_t offset) {
            update_row({a.data() + row * size, size}, {b.data() + offset, step}, function);
        });
    }
    return std::move(a);
}

template <std::size_t N, class Function>
xt::xtensor<Real, N> elementwise(const xt::xtensor<Real, N>& a, Function function) {
    xt::xtensor<Real, N> result(a.shape());
    std::transform(a.data(), a.data() + a.size(), result.data(), function);
    return result;
}
template <std::size_t N, class Function>
xt::xtensor<Real, N> elementwise(xt::xtensor<Real, N>&& a, Function function) {
    for (Real* x = a.data(); x != a.data() + a.size(); ++x) *x = function(*x);
    return std::move(a);
}

}  // namespace

template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    return broadcast("+", a, b, std::plus<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> add(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b) {
    return broadcast("+", std::move(a), b, std::plus<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> subtract(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    return broadcast("-", a, b, std::minus<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> subtract(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b) {
    return broadcast("-", std::move(a), b, std::minus<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    return broadcast("*", a, b, std::multiplies<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> multiply(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b) {
    return broadcast("*", std::move(a), b, std::multiplies<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    return broadcast("/", a, b, std::divides<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> divide(xt::xtensor<Real, N>&& a, const xt::xtensor<Real, N>& b) {
    return broadcast("/", std::move(a), b, std::divides<Real>());
}
template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, Real scalar) {
    return elementwise(a, [scalar](Real x) { return x + scalar; });
}
template <std::size_t N>
xt::xtensor<Real, N> add(xt::xtensor<Real, N>&& a, Real scalar) {
    return elementwise(std::move(a), [scalar](Real x) { return x + scalar; });
}
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, Real scalar) {
    return elementwise(a, [scalar](Real x) { return x * scalar; });
}
template <std::size_t N>
xt::xtensor<Real, N> multiply(xt::xtensor<Real, N>&& a, Real scalar) {
    return elementwise(std::move(a), [scalar](Real x) { return x * scalar; });
}
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, Real scalar) {
    return elementwise(a, [scalar](Real x) { return x / scalar; });
}
template <std::size_t N>
xt::xtensor<Real, N> divide(xt::xtensor<Real, N>&& a, Real scalar) {
    return elementwise(std::move(a), [scalar](Real x) { return x / scalar; });
}

#define LLM_INSTANTIATE(T)                   \
    template T add(const T&, const T&);      \
    template T add(T&&, const T&);           \
    template T subtract(const T&, const T&); \
    template T subtract(T&&, const T&);      \
    template T multiply(const T&, const T&); \
    template T multiply(T&&, const T&);      \
    template T divide(const T&, const T&);   \
    template T divide(T&&, const T&);        \
    template T add(const T&, Real);          \
    template T add(T&&, Real);               \
    template T multiply(const T&, Real);     \
    template T multiply(T&&, Real);          \
    template T divide(const T&, Real);       \
    template T divide(T&&, Real);

LLM_INSTANTIATE(Vector)
LLM_INSTANTIATE(Matrix)
LLM_INSTANTIATE(Tensor3)
LLM_INSTANTIATE(Tensor4)

}  // namespace llm::arithmetic
