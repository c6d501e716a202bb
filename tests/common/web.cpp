#include <limits>

#include "common/numbers/random.hpp"
#include "common/web/blas.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

// Sizes of one, edges of tiles (4 by 8), and more than a block (64 rows, 512 columns, 256
// inner).
struct Sizes {
    int rows, columns, inner;
};
const std::vector<Sizes> all_sizes = {{1, 1, 1},   {1, 9, 17},   {2, 1, 5},   {3, 7, 2},
                                      {4, 8, 16},  {5, 9, 33},   {67, 10, 3}, {6, 515, 4},
                                      {9, 3, 259}, {70, 21, 300}};

Matrix random_matrix(int rows, int columns, Generator& generator) {
    return randn({static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)},
                 generator);
}

// The matrix, stored by rows or, transposed, by columns.
web::StridedMatrix by_rows(const Matrix& matrix) {
    return {matrix.data(), static_cast<int>(matrix.shape(1)), 1};
}
web::StridedMatrix transposed(const Matrix& matrix) {
    return {matrix.data(), 1, static_cast<int>(matrix.shape(1))};
}

}  // namespace

TEST_CASE("web::sgemm equals the product of the BLAS library, with all transposes") {
    Generator generator(1);
    for (const Sizes& sizes : all_sizes) {
        const int rows = sizes.rows, columns = sizes.columns, inner = sizes.inner;
        CAPTURE(rows);
        CAPTURE(columns);
        CAPTURE(inner);
        const Matrix a = random_matrix(rows, inner, generator);
        const Matrix b = random_matrix(inner, columns, generator);
        const Matrix a_transposed = xt::transpose(a), b_transposed = xt::transpose(b);
        const Matrix before = random_matrix(rows, columns, generator);
        const Matrix product = xt::linalg::dot(a, b);
        const Matrix expected = 2 * product + 0.5f * before;
        for (const web::StridedMatrix left : {by_rows(a), transposed(a_transposed)})
            for (const web::StridedMatrix right : {by_rows(b), transposed(b_transposed)}) {
                Matrix result = before;
                web::sgemm(rows, columns, inner, 2, left, right, 0.5f, result.data(), columns);
                CHECK_CLOSE(result, expected, 1e-4);
            }
    }
}

TEST_CASE("web::sgemm writes only the result, whose rows may be further apart") {
    Generator generator(2);
    const Matrix a = random_matrix(5, 3, generator), b = random_matrix(3, 9, generator);
    Matrix result = Matrix::from_shape({5, 12});
    result.fill(7);
    web::sgemm(5, 9, 3, 1, by_rows(a), by_rows(b), 0, result.data(), 12);
    const Matrix left = xt::view(result, xt::all(), xt::range(0, 9));
    const Matrix right = xt::view(result, xt::all(), xt::range(9, 12));
    const Matrix product = xt::linalg::dot(a, b);
    CHECK_CLOSE(left, product, 1e-5);
    CHECK(xt::all(xt::equal(right, 7)));
}

TEST_CASE("web::sgemm and web::sgemv with beta = 0 overwrite NaN") {
    const Matrix one{{1}};
    float result = std::numeric_limits<float>::quiet_NaN();
    web::sgemm(1, 1, 1, 1, by_rows(one), by_rows(one), 0, &result, 1);
    CHECK(result == 1);
    result = std::numeric_limits<float>::quiet_NaN();
    web::sgemv(1, 1, 3, by_rows(one), one.data(), 1, 0, &result, 1);
    CHECK(result == 3);
}

TEST_CASE("web::sgemv equals the product of the BLAS library, also with strides") {
    Generator generator(3);
    for (const Sizes& sizes : all_sizes) {
        const int rows = sizes.rows, columns = sizes.inner;
        CAPTURE(rows);
        CAPTURE(columns);
        const Matrix a = random_matrix(rows, columns, generator);
        const Matrix a_transposed = xt::transpose(a);
        const Matrix x = random_matrix(columns, 2, generator);  // its columns have stride 2
        const Matrix before = random_matrix(rows, 3, generator);
        const Matrix product = xt::linalg::dot(a, x);
        for (const web::StridedMatrix matrix : {by_rows(a), transposed(a_transposed)}) {
            Matrix result = before;
            web::sgemv(rows, columns, 2, matrix, x.data() + 1, 2, 0.5f, result.data() + 1, 3);
            const Matrix expected_column = 2 * xt::view(product, xt::all(), xt::range(1, 2)) +
                                           0.5f * xt::view(before, xt::all(), xt::range(1, 2));
            Matrix expected = before;
            xt::view(expected, xt::all(), xt::range(1, 2)) = expected_column;
            CHECK_CLOSE(result, expected, 1e-4);

            Vector dense = Vector::from_shape({static_cast<std::size_t>(rows)});
            dense.fill(0);
            web::sgemv(rows, columns, 1, matrix, x.data(), 2, 0, dense.data(), 1);
            const Vector first = xt::view(product, xt::all(), 0);
            CHECK_CLOSE(dense, first, 1e-4);
        }
    }
}

TEST_CASE("web::sdot sums the products of all elements, with any strides") {
    std::vector<float> x(70), y(70);
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(i % 7);
        y[i] = static_cast<float>(i % 5) - 2;
    }
    for (const int stride : {1, 2})
        for (const int size : {0, 1, 3, 4, 15, 16, 17, 33, 35}) {
            float expected = 0;
            for (int i = 0; i < size; ++i)
                expected += x[std::size_t(i * stride)] * y[std::size_t(i)];
            CHECK(web::sdot(size, x.data(), stride, y.data(), 1) == expected);
        }
}
