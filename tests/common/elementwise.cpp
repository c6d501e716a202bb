// Vectorized loops over elements and rows, compared with the C library and with xtensor.
#include <cmath>

#include "common/numbers/random.hpp"
#include "common/tensors/elementwise.hpp"
#include "common/tensors/permute.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

// The difference from e^x, which is computed in double, in units in the last place.
double error_in_ulp(float x) {
    const double exact = std::exp(double(x));
    int exponent = 0;
    std::frexp(exact, &exponent);
    const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
    return std::abs(double(vectorizable_exp(x)) - exact) / ulp;
}

// e^x of one element, as the compiler vectorizes it.
float vectorized_exp(float x) {
    return elementwise_exp(Matrix{Matrix::shape_type{3, 37}, x})(2, 1);
}

}  // namespace

TEST_CASE("vectorizable_exp differs from e^x by less than 2 units in the last place") {
    double largest = 0;
    for (double x = -103.9; x < 88.72; x += 1e-4)
        largest = std::max(largest, error_in_ulp(static_cast<float>(x)));
    CHECK(largest < 2);
    // Near 0, where the result is close to 1, and where n changes: odd multiples of ln 2 / 2.
    for (float x = 1e-30f; x < 1; x *= 1.01f)
        CHECK(std::max(error_in_ulp(x), error_in_ulp(-x)) < 2);
    for (int n = -149; n <= 127; ++n) {
        const auto boundary = static_cast<float>((n + 0.5) * std::log(2.0));
        if (boundary > 88.72f) continue;
        CHECK(error_in_ulp(boundary) < 2);
        CHECK(error_in_ulp(std::nextafter(boundary, inf)) < 2);
        CHECK(error_in_ulp(std::nextafter(boundary, -inf)) < 2);
    }
}

TEST_CASE("vectorizable_exp overflows, underflows and passes on NaN, as std::exp does") {
    for (const auto exp_of : {+[](float x) { return vectorizable_exp(x); }, +vectorized_exp}) {
        CHECK(exp_of(0) == 1);
        CHECK(exp_of(-0.0f) == 1);
        for (const float x : {-inf, std::numeric_limits<float>::lowest(), -1e6f, -104.0f})
            CHECK(exp_of(x) == 0);
        for (const float x : {inf, std::numeric_limits<float>::max(), 1e6f, 88.73f})
            CHECK(exp_of(x) == inf);
        CHECK(std::isfinite(exp_of(88.72f)));
        CHECK(std::isnan(exp_of(std::nanf(""))));
        CHECK(exp_of(-100) == doctest::Approx(std::exp(-100.0)).epsilon(0.05));  // subnormal
        CHECK(exp_of(-100) > 0);
    }
}

TEST_CASE("elementwise_exp, row_max, row_sum and dot_product, for rows of many widths") {
    Generator generator(5);
    for (const std::size_t width : {1, 2, 31, 32, 33, 64, 100}) {
        const Matrix x = randn({4, width}, generator), y = randn({4, width}, generator);
        const Matrix exponentials = elementwise_exp(x), maxima = row_max(x), sums = row_sum(x);
        REQUIRE(maxima.shape() == std::array<std::size_t, 2>{4, 1});
        REQUIRE(sums.shape() == std::array<std::size_t, 2>{4, 1});
        for (std::size_t n = 0; n < 4; ++n) {
            Real maximum = x(n, 0);
            double sum = 0, product = 0;
            for (std::size_t i = 0; i < width; ++i) {
                maximum = std::max(maximum, x(n, i));
                sum += double(x(n, i));
                product += double(x(n, i)) * double(y(n, i));
                CHECK(exponentials(n, i) == doctest::Approx(std::exp(x(n, i))).epsilon(1e-6));
            }
            CHECK(maxima(n, 0) == maximum);
            CHECK(std::abs(sums(n, 0) - sum) < 1e-5);
            CHECK(std::abs(dot_product({&x(n, 0), width}, {&y(n, 0), width}) - product) < 1e-5);
        }
    }
}

TEST_CASE(
    "row_max of a row of -inf is the lowest finite number, and row_sum of no columns is 0") {
    const Matrix masked{{-inf, -inf}, {-inf, -3}};
    CHECK(row_max(masked)(0, 0) == std::numeric_limits<Real>::lowest());
    CHECK(row_max(masked)(1, 0) == -3);
    CHECK(row_sum(Matrix(std::array<std::size_t, 2>{2, 0}))(1, 0) == 0);
}

TEST_CASE("operators on a temporary tensor give the same result as on a named one") {
    Generator generator(6);
    const Matrix a = randn({3, 5}, generator), row = randn({1, 5}, generator),
                 column = randn({3, 1}, generator), single = randn({1, 1}, generator);
    for (const Matrix& b : {a, row, column, single}) {
        CHECK_CLOSE(Matrix(a) + b, a + b, 0);
        CHECK_CLOSE(Matrix(a) - b, a - b, 0);
        CHECK_CLOSE(Matrix(a) * b, a * b, 0);
        CHECK_CLOSE(Matrix(a) / b, a / b, 0);
        CHECK_CLOSE(Matrix(b) - a, b - a, 0);  // the result is larger than the temporary
    }
    CHECK_CLOSE(Matrix(a) + Real(2), a + Real(2), 0);
    CHECK_CLOSE(Matrix(a) - Real(2), a - Real(2), 0);
    CHECK_CLOSE(Matrix(a) * Real(3), a * Real(3), 0);
    CHECK_CLOSE(Matrix(a) / Real(3), a / Real(3), 0);
    CHECK_THROWS_WITH_AS(Matrix(a) + randn({3, 2}, generator),
                         "(3, 5) + (3, 2): the shapes cannot be broadcast together",
                         ValueError);
}

TEST_CASE("swap_axes_1_and_2: element (i, k, j, l) is element (i, j, k, l)") {
    const Tensor4 tensor = counting({2, 3, 4, 5});
    const Tensor4 swapped = swap_axes_1_and_2(tensor);
    REQUIRE(swapped.shape() == std::array<std::size_t, 4>{2, 4, 3, 5});
    for (const auto [i, j, k, l] : every_index(2, 3, 4, 5))
        CHECK(swapped(i, k, j, l) == tensor(i, j, k, l));
}
