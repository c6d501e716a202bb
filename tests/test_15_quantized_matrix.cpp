#include "chapters/15_fast/quantized_matrix.hpp"

#include "common/system/parallel.hpp"
#include "tests/fast_helpers.hpp"

using namespace llm;

TEST_CASE("quantize: bfloat16 is rounded to nearest even, as in PyTorch") {
    Matrix weights = fixture<2>("15_fast/weights");
    CHECK(identical(dequantize(quantize(weights, DType::bfloat16)),
                    fixture<2>("15_fast/bfloat16")));

    Generator generator(13);
    Matrix bits = xt::zeros<Real>({40, 50});
    for (Real& number : bits)  // all signs and exponents, also denormal numbers
        do number = std::bit_cast<Real>(generator.next_32_bits());
        while (!std::isfinite(to_float(to_bfloat16(number))));
    bits(0, 0) = Real(-0.0);
    bits(0, 1) = Real(1.00390625);  // halfway between two, rounded to the even one
    bits(0, 2) = Real(1.01171875);
    Matrix expected = bits;
    for (Real& number : expected) number = to_float(to_bfloat16(number));
    const QuantizedMatrix quantized = quantize(bits, DType::bfloat16);
    CHECK(identical(dequantize(quantized), expected));
    CHECK(quantized.bfloat16_values.size() == 2000);
    CHECK(quantized.nbytes() == 4000);
}

TEST_CASE("quantize: int8 in groups of 64 equals the same computation in PyTorch") {
    const Matrix weights = fixture<2>("15_fast/weights");  // 64, 64 and 22 in a row
    const QuantizedMatrix quantized = quantize(weights, DType::int8);
    const Matrix values = fixture<2>("15_fast/quantized"),
                 scales = fixture<2>("15_fast/scales");
    REQUIRE(quantized.int8_values.size() == values.size());
    REQUIRE(quantized.scales.size() == scales.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        CHECK(quantized.int8_values[i] == values.data()[i]);
    for (std::size_t i = 0; i < scales.size(); ++i)
        CHECK(quantized.scales[i] == scales.data()[i]);
    CHECK_CLOSE(dequantize(quantized), fixture<2>("15_fast/int8"), 0);
}

TEST_CASE(
    "quantize: int8 errors are at most half a scale, and the largest weight becomes 127") {
    Generator generator(14);
    for (const std::size_t width : {1u, 2u, 63u, 64u, 65u, 128u, 130u}) {
        const std::size_t groups = (width + 63) / 64;
        Matrix weights = randn({std::size_t{3}, width}, generator);
        xt::view(weights, 1) = Real(0);
        weights(2, width - 1) = -100;  // the largest magnitude of its group, negative
        const QuantizedMatrix quantized = quantize(weights, DType::int8);
        REQUIRE(quantized.scales.size() == 3 * groups);
        const Matrix dequantized = dequantize(quantized);
        for (const auto [row, i] : every_index(3, width)) {
            const Real scale = quantized.scales[row * groups + i / 64];
            CHECK(std::abs(dequantized(row, i) - weights(row, i)) <= 0.500001 * scale);
        }
        for (const auto [row, group] : every_index(3, groups)) {
            int absmax = 0;
            for (std::size_t i = group * 64; i < std::min(width, group * 64 + 64); ++i)
                absmax =
                    std::max(absmax, std::abs(int(quantized.int8_values[row * width + i])));
            CHECK(absmax == (row == 1 ? 0 : 127));
        }
        CHECK(quantized.int8_values.back() == -127);
        CHECK(dequantized(2, width - 1) == doctest::Approx(-100));
    }
}

TEST_CASE("quantize: int8 values stay within 127 when the scale is a denormal float") {
    for (const int steps : {1, 100, 150, 190, 250, 1000}) {  // times 2^-149, the smallest float
        const Real weight = std::ldexp(Real(steps), -149);
        const QuantizedMatrix quantized = quantize(Matrix{{weight, 0, -weight}}, DType::int8);
        CHECK(quantized.int8_values[0] <= 127);
        CHECK(quantized.int8_values[0] >= (steps == 1 ? 0 : 100));
        CHECK(quantized.int8_values[1] == 0);
        CHECK(quantized.int8_values[2] == -quantized.int8_values[0]);
    }
}

TEST_CASE("quantize: float32 keeps all bits, and nbytes counts values and scales") {
    Generator generator(15);
    const Matrix weights = randn({5, 130}, generator);
    CHECK(identical(dequantize(quantize(weights, DType::float32)), weights));
    CHECK(quantize(weights, DType::float32).nbytes() == 5 * 130 * 4);
    CHECK(quantize(weights, DType::bfloat16).nbytes() == 5 * 130 * 2);
    CHECK(quantize(weights, DType::int8).nbytes() == 5 * (130 + 3 * 4));
    CHECK(quantize(counting({2, 64}), DType::int8).nbytes() == 2 * (64 + 4));
    for (const DType dtype : weight_dtypes) {
        const QuantizedMatrix quantized = quantize(weights, dtype);
        CHECK(quantized.dtype == dtype);
        CHECK(quantized.out_features == 5);
        CHECK(quantized.in_features == 130);
    }
}

TEST_CASE("quantize refuses weights that are not finite") {
    for (const DType dtype : weight_dtypes)
        for (const Real bad : {infinity, -infinity, not_a_number})
            for (const std::size_t index : {0u, 5u}) {
                Matrix weights = counting({2, 3});
                weights.data()[index] = bad;
                CHECK_THROWS_WITH_AS(quantize(weights, dtype),
                                     "quantize: a matrix of (2, 3) holds inf or NaN",
                                     ShapeError);
            }
}

TEST_CASE("quantize refuses dtypes that are not among weight_dtypes") {
    CHECK_THROWS_WITH_AS(quantize(counting({2, 3}), DType::float16),
                         "quantize: no weights of float16", std::invalid_argument);
}

TEST_CASE("dequantize_row and dot_row: each row of a quantized matrix by itself") {
    Generator generator(16);
    for (const std::size_t width : {1u, 63u, 64u, 65u, 130u}) {
        const Matrix weights = randn({std::size_t{4}, width}, generator);
        Guarded inputs(random_values(width, generator), not_a_number);
        for (const DType dtype : weight_dtypes) {
            const QuantizedMatrix quantized = quantize(weights, dtype);
            const Matrix dequantized = dequantize(quantized);
            CHECK_CLOSE(dequantized, weights, 0.02);
            for (std::size_t row = 0; row < 4; ++row) {
                Guarded alone(std::vector<Real>(width), 77);
                quantized.dequantize_row(row, alone.values());
                CHECK(std::ranges::equal(alone.values(), view_of(dequantized)[row]));
                CHECK(alone.intact());
                const double gap = quantized.dot_row(row, inputs.values()) -
                                   sum_of_products(alone.values(), inputs.values());
                CHECK(std::abs(gap) <= tolerance_of(alone.values(), inputs.values()));
            }
        }
    }
}

TEST_CASE("matvec overwrites or accumulates all outputs of one token, for each dtype") {
    Generator generator(17);
    const std::size_t chunks = 4 * num_threads();
    for (const std::size_t out :
         {std::size_t{1}, std::size_t{2}, std::size_t{3}, chunks - 1, chunks, chunks + 1,
          2 * chunks + 3, std::size_t{64}, std::size_t{65}, 9 * chunks + 1})
        for (const std::size_t in : {1u, 63u, 64u, 65u, 130u}) {
            const Matrix weights = randn({out, in}, generator);
            const Matrix inputs = randn({std::size_t{1}, in}, generator);
            for (const DType dtype : weight_dtypes) {
                const QuantizedMatrix quantized = quantize(weights, dtype);
                const Matrix expected = exact_product(inputs, dequantize(quantized));
                const auto row_of = [&](Guarded& guarded) {
                    return matrix_of({guarded.values().data(), 1, out, out});
                };
                Guarded outputs(std::vector<Real>(out, not_a_number), 77);
                matvec(quantized, view_of(inputs)[0], outputs.values());
                CHECK_CLOSE(row_of(outputs), expected, 2e-6);
                matvec(quantized, view_of(inputs)[0], outputs.values(), Update::accumulate);
                CHECK_CLOSE(row_of(outputs), expected * Real(2), 2e-6);
                matvec(quantized, view_of(inputs)[0], outputs.values(), Update::overwrite);
                CHECK_CLOSE(row_of(outputs), expected, 2e-6);
                CHECK(outputs.intact());
            }
        }
}

TEST_CASE("matvec reports the sizes that do not fit") {
    const QuantizedMatrix quantized = quantize(counting({3, 2}), DType::int8);
    std::vector<Real> two(2), three(3);
    CHECK_NOTHROW(matvec(quantized, two, three));
    CHECK_THROWS_WITH_AS(matvec(quantized, three, three),
                         "matvec: weights of (3, 2) do not map 3 inputs to 3 outputs",
                         ShapeError);
    CHECK_THROWS_WITH_AS(matvec(quantized, two, two),
                         "matvec: weights of (3, 2) do not map 2 inputs to 2 outputs",
                         ShapeError);
}

using Multiply = void (*)(ConstMatrixView, const QuantizedMatrix&, MatrixView,
                          AlignedVector<Real>&, Update);

// Inputs and outputs are columns of wider matrices; the others must stay as they are.
void check_multiply(Multiply multiply, const Matrix& wide, const Matrix& weights, DType dtype) {
    const std::size_t N = wide.shape(0), out = weights.shape(0), in = weights.shape(1);
    const QuantizedMatrix quantized = quantize(weights, dtype);
    const Matrix inputs = xt::view(wide, xt::all(), xt::range(2, in + 2));
    const Matrix expected = exact_product(inputs, dequantize(quantized));
    Matrix memory = xt::ones<Real>({N, out + 2}) * not_a_number;
    xt::view(memory, xt::all(), 0) = Real(77);
    xt::view(memory, xt::all(), out + 1) = Real(77);
    const MatrixView outputs = view_of(memory).columns(1, out);
    const ConstMatrixView rows = view_of(wide).columns(2, in);
    AlignedVector<Real> buffer;
    multiply(rows, quantized, outputs, buffer, Update::overwrite);
    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
    multiply(rows, quantized, outputs, buffer, Update::accumulate);
    CHECK_CLOSE(matrix_of(outputs), expected * Real(2), 2e-6);
    multiply(rows, quantized, outputs, buffer, Update::overwrite);
    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
    for (std::size_t n = 0; n < N; ++n) CHECK((memory(n, 0) == 77 && memory(n, out + 1) == 77));
}

TEST_CASE(
    "matmul_transposed and matmul_by_rows overwrite or accumulate all outputs of any number of "
    "tokens, for each dtype") {
    Generator generator(18);
    for (const Multiply multiply : {Multiply(matmul_transposed), Multiply(matmul_by_rows)})
        for (const std::size_t out : {1u, 2u, 63u, 64u, 65u, 130u})
            for (const std::size_t in : {1u, 64u, 65u, 130u})
                for (const std::size_t N : {1u, 2u, 3u, 4u, 5u, 16u, 70u}) {
                    const Matrix weights = randn({out, in}, generator);
                    const Matrix wide = randn({N, in + 3}, generator);
                    for (const DType dtype : weight_dtypes)
                        check_multiply(multiply, wide, weights, dtype);
                }
}

TEST_CASE(
    "matmul_transposed and matmul_by_rows of quantized weights report the shapes that do not "
    "fit, for each dtype") {
    const Matrix inputs = counting({5, 4});
    Matrix outputs = counting({5, 3});
    AlignedVector<Real> buffer;
    for (const DType dtype : weight_dtypes) {
        const QuantizedMatrix quantized = quantize(counting({3, 4}), dtype);
        CHECK_NOTHROW(matmul_transposed(view_of(inputs), quantized, view_of(outputs), buffer));
        CHECK_THROWS_WITH_AS(matmul_transposed(view_of(inputs), quantized,
                                               view_of(outputs).columns(0, 2), buffer),
                             "matmul: weights of (3, 4) do not map (5, 4) to (5, 2)",
                             ShapeError);
        CHECK_THROWS_AS(
            matmul_transposed(view_of(inputs), quantized, view_of(outputs).rows(0, 4), buffer),
            ShapeError);
        CHECK_THROWS_WITH_AS(
            matmul_by_rows(view_of(inputs), quantized, view_of(outputs).rows(0, 4), buffer),
            "matmul: weights of (3, 4) do not map (5, 4) to (4, 3)", ShapeError);
        CHECK_THROWS_AS(matmul_transposed(view_of(inputs).columns(0, 3), quantized,
                                          view_of(outputs), buffer),
                        ShapeError);
    }
}
