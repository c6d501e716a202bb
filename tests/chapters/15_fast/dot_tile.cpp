#include "chapters/15_fast/kernels/dot_tile.hpp"

#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

// A random matrix in the first columns of a wider one, whose other columns are NaN.
Matrix with_gaps(std::size_t num_rows, std::size_t width, Generator& generator) {
    Matrix memory = randn({num_rows, width + 3}, generator);
    for (std::size_t row = 0; row < num_rows; ++row)
        for (std::size_t i = 0; i < 3; ++i) memory(row, width + i) = not_a_number;
    return memory;
}

// The outputs are columns of a wider matrix; the others must stay as they are.
void check_product(std::size_t num_tokens, std::size_t num_rows, std::size_t in,
                   Generator& generator) {
    INFO(num_tokens, " tokens, ", in, " to ", num_rows);
    const Matrix inputs = with_gaps(num_tokens, in, generator);
    Matrix weights = with_gaps(num_rows, in, generator);
    std::vector<Bfloat16> halves;
    for (Real& weight : weights) {
        halves.push_back(to_bfloat16(weight));
        weight = to_float(halves.back());
    }
    const ConstMatrixView x = view_of(inputs).columns(0, in);
    const ConstMatrixView rows = view_of(weights).columns(0, in);
    const BasicMatrixView<const Bfloat16> rows_of_halves{halves.data(), num_rows, in, in + 3};
    Matrix memory = xt::ones<Real>({num_tokens, num_rows + 2}) * Real(77);
    const MatrixView outputs = view_of(memory).columns(1, num_rows);
    const auto count_wrong = [&](double times) {
        int count = 0;
        for (const auto [t, r] : every_index(num_tokens, num_rows))
            count += !(std::abs(outputs[t][r] - times * sum_of_products(rows[r], x[t])) <=
                       times * tolerance_of(rows[r], x[t]));
        return count;
    };
    multiply_in_tiles(x, rows, outputs);
    CHECK(count_wrong(1) == 0);
    multiply_in_tiles(x, rows, outputs, Update::accumulate);
    CHECK(count_wrong(2) == 0);
    multiply_in_tiles(x, rows_of_halves, outputs, Update::accumulate);
    CHECK(count_wrong(3) == 0);
    multiply_in_tiles(x, rows_of_halves, outputs);
    CHECK(count_wrong(1) == 0);
    for (std::size_t t = 0; t < num_tokens; ++t)
        CHECK((memory(t, 0) == 77 && memory(t, num_rows + 1) == 77));
}

}  // namespace

TEST_CASE("multiply_in_tiles: 1 to 17 rows times 1 to 17 tokens, in float32 and bfloat16") {
    Generator generator(31);
    for (std::size_t num_rows = 1; num_rows <= 17; ++num_rows)
        for (std::size_t num_tokens = 1; num_tokens <= 17; ++num_tokens)
            check_product(num_tokens, num_rows, 37, generator);
}

TEST_CASE("multiply_in_tiles: any number of features") {
    Generator generator(32);
    for (std::size_t in = 0; in <= 100; ++in) check_product(3 + in % 4, 5, in, generator);
}
