#include <cmath>

#include "common/numbers/random.hpp"
#include "common/tensors/argsort.hpp"
#include "common/tensors/matmul.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("require formats sizes and shapes into its message") {
    CHECK_NOTHROW(require(true, "not thrown"));
    CHECK_THROWS_WITH(require(false, "f: {} does not match {}",
                              std::array<std::size_t, 2>{2, 3}, std::array<std::size_t, 1>{7}),
                      "f: (2, 3) does not match (7,)");
    CHECK_THROWS_AS(require(false, "f"), ValueError);
}

TEST_CASE("reshape keeps the row-major order and checks the number of elements") {
    const Matrix matrix{{0, 1, 2}, {3, 4, 5}};
    CHECK_CLOSE(reshape(matrix, {3, 2}), (Matrix{{0, 1}, {2, 3}, {4, 5}}), 0);
    CHECK_CLOSE(reshape(matrix, {1, 2, 3}), counting({1, 2, 3}), 0);
    CHECK_THROWS_WITH(reshape(matrix, {4, 4}), "reshape: cannot reshape (2, 3) to (4, 4)");
}

TEST_CASE("operators return tensors, not lazy expressions, and broadcast axes of size 1") {
    const Matrix a{{1, 2}, {3, 4}};
    const Matrix column{{10}, {20}};
    static_assert(std::is_same_v<decltype(a + column), Matrix>);
    CHECK_CLOSE(a + column, (Matrix{{11, 12}, {23, 24}}), 0);
    CHECK_CLOSE(a - column, (Matrix{{-9, -8}, {-17, -16}}), 0);
    CHECK_CLOSE(a * column, (Matrix{{10, 20}, {60, 80}}), 0);
    CHECK_CLOSE(a / column, (Matrix{{0.1f, 0.2f}, {0.15f, 0.2f}}), 1e-7);
    CHECK_CLOSE(a + Real(1), (Matrix{{2, 3}, {4, 5}}), 0);
    CHECK_CLOSE(a - Real(1), (Matrix{{0, 1}, {2, 3}}), 0);
    CHECK_CLOSE(a * Real(2), (Matrix{{2, 4}, {6, 8}}), 0);
    CHECK_CLOSE(a / Real(2), (Matrix{{0.5, 1}, {1.5, 2}}), 0);
    Matrix changing = a;
    static_assert(std::is_same_v<decltype(changing + Matrix{{1}}), Matrix>);
    CHECK_THROWS_WITH(changing + Matrix(xt::ones<Real>({2, 3})),
                      "(2, 2) + (2, 3): the shapes cannot be broadcast together");
    CHECK_THROWS_AS(a / counting({3, 2}), ValueError);
}

TEST_CASE("operators broadcast each axis by itself, on either side or on both") {
    const auto check = [](const std::array<std::size_t, 3>& shape_a,
                          const std::array<std::size_t, 3>& shape_b) {
        INFO(to_text(shape_a), " and ", to_text(shape_b));
        const Tensor3 a = counting({shape_a[0], shape_a[1], shape_a[2]}) + Real(1);
        const Tensor3 b = counting({shape_b[0], shape_b[1], shape_b[2]}) * Real(0.5) + Real(3);
        std::array<std::size_t, 3> shape;
        for (std::size_t axis = 0; axis < 3; ++axis)
            shape[axis] = std::max(shape_a[axis], shape_b[axis]);
        const auto value = [](const Tensor3& tensor, std::size_t i, std::size_t j,
                              std::size_t k) {  // index 0 on axes of size 1
            return tensor(i % tensor.shape(0), j % tensor.shape(1), k % tensor.shape(2));
        };
        Tensor3 sum = xt::zeros<Real>(shape), difference = sum, product = sum, quotient = sum;
        for (const auto& [i, j, k] : every_index(shape[0], shape[1], shape[2])) {
            const Real x = value(a, i, j, k), y = value(b, i, j, k);
            sum(i, j, k) = x + y;
            difference(i, j, k) = x - y;
            product(i, j, k) = x * y;
            quotient(i, j, k) = x / y;
        }
        CHECK_CLOSE(a + b, sum, 0);
        CHECK_CLOSE(a - b, difference, 0);
        CHECK_CLOSE(a * b, product, 0);
        CHECK_CLOSE(a / b, quotient, 0);
    };
    for (const std::size_t i : {1u, 2u})
        for (const std::size_t j : {1u, 3u})
            for (const std::size_t k : {1u, 37u}) {
                check({i, j, k}, {2, 3, 37});
                check({2, 3, 37}, {i, j, k});
                check({i, 1, k}, {1, j, 37});
                check({i, j, 1}, {1, 1, k});
            }
    CHECK((Matrix(xt::zeros<Real>({0, 3})) + Matrix(xt::ones<Real>({1, 3}))).size() == 0);
}

TEST_CASE("difference reports the worst element and its index") {
    const Matrix expected{{1, 2}, {3, 200}};
    CHECK(difference(expected, expected, 0).empty());
    CHECK(
        difference(Matrix{{1, 2}, {3, 201}}, expected, 1e-5) ==
        "worst element (1, 1) of (2, 2), 1 wrong: got 201, expected 200 (largest difference 1, "
        "allowed 0.002)");
    CHECK(difference(Vector{1, NAN, 4}, Vector{1, 2, 3}, 0.1) ==
          "worst element 1 of 3, 2 wrong: got NaN, expected 2 (largest difference inf, allowed "
          "0.3)");
    CHECK(difference(Matrix{{1, 2}}, expected, 1) == "shape (1, 2), expected (2, 2)");
    CHECK(!difference(Matrix{{1, 2}, {3, NAN}}, expected, 1).empty());
    CHECK(!difference(Matrix{{NAN}}, Matrix{{NAN}}, 1).empty());
    CHECK(difference(Matrix{{-infinity}}, Matrix{{-infinity}}, 0).empty());
    CHECK(!difference(Matrix{{infinity}}, Matrix{{-infinity}}, 1).empty());
    CHECK(!difference(Matrix{{0}}, Matrix{{-infinity}}, 1).empty());
}

TEST_CASE("tensors begin at a multiple of 64 bytes, large ones at a multiple of 2 MB") {
    const auto address = [](const auto& elements) {
        return reinterpret_cast<std::uintptr_t>(elements.data());
    };
    for (const std::size_t size : {1u, 3u, 17u, 1000u}) {
        const Vector vector = xt::zeros<Real>({size});
        CHECK(address(vector) % 64 == 0);
        CHECK(address(AlignedVector<std::int8_t>(size)) % 64 == 0);
    }
    CHECK(address(AlignedVector<std::int8_t>(5'000'000)) % (2 << 20) == 0);
    CHECK_THROWS_AS(AlignedAllocator<Real>().allocate(SIZE_MAX / 2), std::bad_array_new_length);
}

TEST_CASE("a matrix view selects rows and columns of a matrix") {
    Matrix matrix = counting({5, 7});
    const MatrixView all = view_of(matrix), some = all.rows(2, 3), part = some.columns(4, 2);
    CHECK((all.num_rows == 5 && all.num_columns == 7 && all.stride == 7));
    CHECK((some.num_rows == 3 && some.num_columns == 7));
    CHECK((part.num_rows == 3 && part.num_columns == 2));
    for (const auto [n, i] : every_index(3, 2)) CHECK(part[n][i] == matrix(2 + n, 4 + i));
    CHECK(all[4].size() == 7);
    CHECK(part[0].size() == 2);
    const MatrixView same = all.columns(4, 2).rows(2, 3);
    CHECK((same.data == part.data && same.num_rows == 3 && same.num_columns == 2 &&
           same.stride == 7));
    part[1][1] = -1;
    CHECK(matrix(3, 5) == -1);
    const ConstMatrixView seen = part;
    CHECK(&seen[2][0] == &matrix(4, 4));
    CHECK((seen.num_rows == 3 && seen.num_columns == 2 && seen.stride == 7));
    const ConstMatrixView whole = view_of(std::as_const(matrix));
    CHECK(&whole[4][6] == &matrix(4, 6));
    CHECK((whole.num_rows == 5 && whole.num_columns == 7));
}

TEST_CASE("matmul and matmul_transposed are sums of products and overwrite or accumulate") {
    Generator generator(12);
    for (const auto& sizes : std::vector<std::array<std::size_t, 3>>{
             {1, 1, 1}, {3, 5, 7}, {1, 70, 65}, {70, 65, 130}, {64, 64, 64}, {2, 1, 3}}) {
        const std::size_t N = sizes[0], K = sizes[1], M = sizes[2];
        // Blocks of wider matrices: the stride is larger than the number of columns.
        const Matrix a = randn({N + 1, K + 2}, generator), b = randn({M + 2, K + 3}, generator),
                     c = randn({K + 1, M + 4}, generator);
        const ConstMatrixView left = view_of(a).columns(2, K).rows(1, N);
        const ConstMatrixView rows = view_of(b).rows(2, M).columns(1, K);
        const ConstMatrixView columns = view_of(c).rows(1, K).columns(3, M);
        Matrix by_rows = xt::zeros<Real>({N, M}), by_columns = by_rows;
        for (const auto& [n, m] : every_index(N, M)) {
            double row_sum = 0, column_sum = 0;
            for (std::size_t k = 0; k < K; ++k) {
                row_sum += double(a(1 + n, 2 + k)) * double(b(2 + m, 1 + k));
                column_sum += double(a(1 + n, 2 + k)) * double(c(1 + k, 3 + m));
            }
            by_rows(n, m) = Real(row_sum);
            by_columns(n, m) = Real(column_sum);
        }

        Matrix memory = xt::ones<Real>({N + 2, M + 5}) * Real(77);
        const MatrixView result = view_of(memory).rows(1, N).columns(2, M);
        const auto check = [&](const Matrix& expected) {
            for (const auto& [n, m] : every_index(N + 2, M + 5)) {
                const bool inside = n >= 1 && n <= N && m >= 2 && m < M + 2;
                const Real wanted = inside ? expected(n - 1, m - 2) : 77;
                CHECK(std::abs(memory(n, m) - wanted) <= 1e-4);
            }
        };
        for (std::size_t n = 0; n < N; ++n) std::ranges::fill(result[n], std::nanf(""));
        matmul_transposed(left, rows, result);
        check(by_rows);
        matmul_transposed(left, rows, result, Update::accumulate);
        check(by_rows * Real(2));
        matmul_transposed(left, rows, result, Update::overwrite);
        check(by_rows);
        for (std::size_t n = 0; n < N; ++n) std::ranges::fill(result[n], std::nanf(""));
        matmul(left, columns, result);
        check(by_columns);
        matmul(left, columns, result, Update::accumulate);
        check(by_columns * Real(2));
        matmul(left, columns, result, Update::overwrite);
        check(by_columns);
        const Matrix transposed_left = xt::transpose(Matrix(xt::view(
            a, xt::range(std::size_t{1}, N + 1), xt::range(std::size_t{2}, K + 2))));  // (K, N)
        transposed_matmul(view_of(transposed_left), columns, result, Update::accumulate);
        check(by_columns * Real(2));
        transposed_matmul(view_of(transposed_left), columns, result);
        check(by_columns);
    }
}

TEST_CASE("matmul and matmul_transposed of matrices return a new matrix") {
    const Matrix a = counting({2, 3}), b = counting({3, 4}), b_transposed = xt::transpose(b);
    const Matrix expected = xt::linalg::dot(a, b);
    CHECK_CLOSE(matmul(a, b), expected, 0);
    CHECK_CLOSE(matmul_transposed(a, b_transposed), expected, 0);
    CHECK_THROWS_WITH_AS(matmul_transposed(a, b),
                         "matmul: the product of (2, 3) and (4, 3) is not (2, 3)", ValueError);
}

TEST_CASE("matmul and matmul_transposed report the shapes that do not match") {
    const Matrix a = counting({2, 3}), b = counting({4, 3}), c = counting({3, 4});
    Matrix right = counting({2, 4}), narrow = counting({2, 3}), tall = counting({3, 4});
    const auto rejected = [](auto function, const Matrix& x, const Matrix& y, Matrix& result,
                             const std::string& message) {
        CHECK_THROWS_WITH_AS(
            function(view_of(x), view_of(y), view_of(result), Update::overwrite),
            message.c_str(), ValueError);
    };
    CHECK_NOTHROW(matmul_transposed(view_of(a), view_of(b), view_of(right)));
    CHECK_NOTHROW(matmul(view_of(a), view_of(c), view_of(right)));
    const auto by_rows = [](auto&&... arguments) { matmul_transposed(arguments...); };
    const auto by_columns = [](auto&&... arguments) { matmul(arguments...); };
    const auto by_sums = [](auto&&... arguments) { transposed_matmul(arguments...); };
    rejected(by_rows, a, c, right, "matmul: the product of (2, 3) and (4, 3) is not (2, 4)");
    rejected(by_rows, a, b, narrow, "matmul: the product of (2, 3) and (3, 4) is not (2, 3)");
    rejected(by_rows, a, b, tall, "matmul: the product of (2, 3) and (3, 4) is not (3, 4)");
    rejected(by_columns, a, b, right, "matmul: the product of (2, 3) and (4, 3) is not (2, 4)");
    rejected(by_columns, a, c, narrow,
             "matmul: the product of (2, 3) and (3, 4) is not (2, 3)");
    rejected(by_columns, a, c, tall, "matmul: the product of (2, 3) and (3, 4) is not (3, 4)");
    rejected(by_sums, a, c, right, "matmul: the product of (3, 2) and (3, 4) is not (2, 4)");
    rejected(by_sums, b, b, narrow, "matmul: the product of (3, 4) and (4, 3) is not (2, 3)");
}

TEST_CASE("argsort_descending keeps the order of equal values") {
    const Vector values{2, 5, -infinity, 5, 3};
    CHECK(argsort_descending(values) == std::vector<std::size_t>{1, 3, 4, 0, 2});
    CHECK(argsort_descending(values, 3) == std::vector<std::size_t>{1, 3, 4});
    CHECK(argsort_descending(values, 9).size() == 5);
    CHECK(argsort_descending(std::vector<Real>{1, 2, 2}, 1) == std::vector<std::size_t>{1});
}
