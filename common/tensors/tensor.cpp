#include "common/tensors/tensor.hpp"

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

}  // namespace

template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    check_broadcastable("+", a, b);
    return xt::operator+(a, b);
}
template <std::size_t N>
xt::xtensor<Real, N> subtract(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    check_broadcastable("-", a, b);
    return xt::operator-(a, b);
}
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    check_broadcastable("*", a, b);
    return xt::operator*(a, b);
}
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, const xt::xtensor<Real, N>& b) {
    check_broadcastable("/", a, b);
    return xt::operator/(a, b);
}
template <std::size_t N>
xt::xtensor<Real, N> add(const xt::xtensor<Real, N>& a, Real scalar) {
    return xt::operator+(a, scalar);
}
template <std::size_t N>
xt::xtensor<Real, N> multiply(const xt::xtensor<Real, N>& a, Real scalar) {
    return xt::operator*(a, scalar);
}
template <std::size_t N>
xt::xtensor<Real, N> divide(const xt::xtensor<Real, N>& a, Real scalar) {
    return xt::operator/(a, scalar);
}

#define LLM_INSTANTIATE(T)                   \
    template T add(const T&, const T&);      \
    template T subtract(const T&, const T&); \
    template T multiply(const T&, const T&); \
    template T divide(const T&, const T&);   \
    template T add(const T&, Real);          \
    template T multiply(const T&, Real);     \
    template T divide(const T&, Real);

LLM_INSTANTIATE(Vector)
LLM_INSTANTIATE(Matrix)
LLM_INSTANTIATE(Tensor3)
LLM_INSTANTIATE(Tensor4)

}  // namespace llm::arithmetic
