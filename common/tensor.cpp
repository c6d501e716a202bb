#include "common/tensor.hpp"

namespace llm {

#define LLM_OPERATOR(sign)                                                           \
    template <std::size_t N>                                                         \
    xt::xtensor<Real, N> operator sign(const xt::xtensor<Real, N>& a,                \
                                       const xt::xtensor<Real, N>& b) {              \
        return xt::operator sign(a, b);                                              \
    }                                                                                \
    template <std::size_t N>                                                         \
    xt::xtensor<Real, N> operator sign(const xt::xtensor<Real, N>& a, Real number) { \
        return xt::operator sign(a, number);                                         \
    }                                                                                \
    template Vector operator sign(const Vector&, const Vector&);                     \
    template Matrix operator sign(const Matrix&, const Matrix&);                     \
    template Tensor3 operator sign(const Tensor3&, const Tensor3&);                  \
    template Tensor4 operator sign(const Tensor4&, const Tensor4&);                  \
    template Vector operator sign(const Vector&, Real);                              \
    template Matrix operator sign(const Matrix&, Real);                              \
    template Tensor3 operator sign(const Tensor3&, Real);                            \
    template Tensor4 operator sign(const Tensor4&, Real);

LLM_OPERATOR(+)
LLM_OPERATOR(-)
LLM_OPERATOR(*)
LLM_OPERATOR(/)

}  // namespace llm
