// The traps of docs/xtensor.md. Each test first checks the correct code, which must hold with
// every version of xtensor, then the wrong result that xtensor 0.24 gives. If a later version
// fixes a trap, only the second half is skipped.
#include <cmath>
#include <type_traits>

#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

#if __has_include(<xtensor/generators/xrandom.hpp>)
#include <xtensor/generators/xrandom.hpp>
#else
#include <xtensor/xrandom.hpp>
#endif

using namespace llm;

constexpr bool is_0_24 = XTENSOR_VERSION_MAJOR == 0 && XTENSOR_VERSION_MINOR <= 24;

#ifdef XTENSOR_ENABLE_ASSERT  // the build with sanitizers, which stops at an invalid read
constexpr bool reads_are_checked = true;
#else
constexpr bool reads_are_checked = false;
#endif

TEST_CASE("trap 1: a lazy keep_dims reducer inside a larger expression") {
    const Matrix x{{1, 2}, {30, 40}};
    const Matrix maxima = xt::amax(x, {1}, xt::keep_dims);
    const Matrix right = x - maxima;
    CHECK_CLOSE(right, (Matrix{{-1, 0}, {-10, 0}}), 0);

    if (!is_0_24 || reads_are_checked) return;
    const Matrix wrong = x - xt::amax(x, {1}, xt::keep_dims);  // row 1 reads past the end of x
    CHECK(!difference(wrong, right, 0).empty());
}

TEST_CASE("trap 2: dot on a three-dimensional view ignores the offset of the view") {
    const Tensor3 x = counting({2, 2, 2});
    const Matrix identity{{1, 0}, {0, 1}};
    const Tensor3 second = xt::view(x, xt::range(1, 2), xt::all(), xt::all());
    const Tensor3 right = xt::linalg::dot(second, identity);
    CHECK_CLOSE(right, second, 0);

    const auto view = xt::view(x, xt::range(1, 2), xt::all(), xt::all());
    const Tensor3 wrong = xt::linalg::dot(view, identity);
    if (is_0_24) CHECK(wrong(0, 0, 0) == x(0, 0, 0));
}

TEST_CASE("trap 3: dot with a transposed view of the same matrix") {
    Generator generator(1);
    const Matrix q = randn({5, 8}, generator);
    const Matrix first = xt::view(q, xt::range(0, 3), xt::all());
    const Matrix right = xt::linalg::dot(q, xt::transpose(first));
    CHECK(dims(right) == std::array<std::size_t, 2>{5, 3});

    const auto view = xt::view(q, xt::range(0, 3), xt::all());
    const Matrix wrong = xt::linalg::dot(q, xt::transpose(view));
    if (is_0_24) CHECK(dims(wrong) == std::array<std::size_t, 2>{5, 5});
}

TEST_CASE("trap 4: dot of rank 3 is NumPy's dot, not a batched matrix product") {
    const Tensor3 a = counting({2, 3, 4});
    const Tensor3 b = counting({2, 4, 5});
    const auto product = xt::linalg::dot(a, b);
    CHECK(product.dimension() == 4);  // (2, 3, 2, 5): every matrix of a times every one of b
}

TEST_CASE("trap 5: the compiler does not check the rank") {
    // A Tensor3 can be assigned to a Matrix; the copy writes out of bounds.
    static_assert(std::is_assignable_v<Matrix&, Tensor3>);

    // A missing index is taken as a leading 0.
    const Matrix matrix = counting({3, 4});
    CHECK(matrix(2) == matrix(0, 2));
}

TEST_CASE("trap 6: 0.5 computes in double, and mean adds in float") {
    const Matrix x{{1, 2}};
    static_assert(std::is_same_v<decltype(x * Real(0.5))::value_type, Real>);
    static_assert(std::is_same_v<decltype(x * 0.5)::value_type, double>);
    static_assert(std::is_same_v<std::decay_t<decltype(xt::mean<Real>(x)())>, Real>);
    static_assert(std::is_same_v<std::decay_t<decltype(xt::mean(x)())>, double>);
    const Vector ones = xt::ones<Real>({std::size_t{1} << 25});
    CHECK(xt::mean(ones)() == 0.5);
    CHECK(xt::mean<double>(ones)() == 1);
}

TEST_CASE("trap 7: auto keeps a lazy expression, not its result") {
    const Vector values = xt::random::randn<Real>({3});
    const Real once = values(0);
    CHECK(values(0) == once);

    auto lazy = xt::random::randn<Real>({3});
    const Real first = lazy(0);
    CHECK(lazy(0) != first);
}

TEST_CASE("trap 8: allclose broadcasts, so tensors of different shapes can be close") {
    const Matrix ones = xt::ones<Real>({3, 4});
    const Vector four_ones = xt::ones<Real>({4});
    CHECK(difference(ones, four_ones, 1e-5) == "shape (3, 4), expected (4,)");

    CHECK(xt::allclose(ones, four_ones));
}

TEST_CASE("trap 9: reshape_view does not check the number of elements") {
    const Matrix matrix = counting({2, 3});
    CHECK_THROWS_AS(reshape(matrix, {4, 4}), ValueError);

    CHECK_NOTHROW(xt::reshape_view(matrix, {4, 4}));  // reading it is out of bounds
}

TEST_CASE("trap 10: amax never returns less than the lowest finite value") {
    const Matrix fully_masked = xt::ones<Real>({1, 3}) * -infinity;
    const Matrix maxima = xt::amax(fully_masked, {1}, xt::keep_dims);
    CHECK(maxima(0, 0) == std::numeric_limits<Real>::lowest());  // softmax relies on it
}

namespace {
Matrix repeat(const Matrix& matrix, std::size_t, std::size_t) { return matrix; }
}  // namespace

TEST_CASE("trap 12: xtensor's operators do not check shapes") {
    const Matrix a{{1, 2}, {3, 4}};
    const Matrix b{{1, 2, 3}, {4, 5, 6}};
    CHECK_THROWS_WITH(a + b, "(2, 2) + (2, 3): the shapes cannot be broadcast together");

    if (!reads_are_checked) CHECK_NOTHROW(xt::operator+(a, b));
}

TEST_CASE("trap 11: argument-dependent lookup prefers xtensor's function of the same name") {
    Matrix matrix{{1, 2}};  // not const, so xt::repeat is the better match
    const Matrix wrong = repeat(matrix, std::size_t{2}, std::size_t{1});
    CHECK_CLOSE(wrong, (Matrix{{1, 1, 2, 2}}), 0);
    CHECK_CLOSE(::repeat(matrix, 2, 1), matrix, 0);
}
