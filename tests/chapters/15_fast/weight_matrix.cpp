#include "chapters/15_fast/weight_matrix.hpp"

#include <cstring>

#include "common/system/parallel.hpp"
#include "tests/support/fast_helpers.hpp"

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
    const WeightMatrix quantized = quantize(bits, DType::bfloat16);
    CHECK(identical(dequantize(quantized), expected));
    CHECK(quantized.nbytes() == 4000);
}

TEST_CASE("quantize: float32 keeps all bits, and nbytes counts what is stored") {
    Generator generator(15);
    const Matrix weights = randn({5, 130}, generator);
    CHECK(identical(dequantize(quantize(weights, DType::float32)), weights));
    CHECK(quantize(weights, DType::float32).nbytes() == 5 * 130 * 4);
    CHECK(quantize(weights, DType::bfloat16).nbytes() == 5 * 130 * 2);
    for (const DType dtype : weight_dtypes) {
        const WeightMatrix quantized = quantize(weights, dtype);
        CHECK(quantized.dtype() == dtype);
        CHECK(quantized.kernels == &kernels_of(dtype));
        CHECK(quantized.out_features == 5);
        CHECK(quantized.in_features == 130);
    }
}

TEST_CASE("quantize rejects weights that are not finite") {
    for (const DType dtype : weight_dtypes)
        for (const Real bad : {infinity, -infinity, not_a_number})
            for (const std::size_t index : {0u, 5u}) {
                Matrix weights = counting({2, 3});
                weights.data()[index] = bad;
                CHECK_THROWS_WITH_AS(quantize(weights, dtype),
                                     "quantize: a matrix of (2, 3) holds inf or NaN",
                                     ValueError);
            }
}

TEST_CASE("quantize rejects weights that round to infinity in bfloat16") {
    const Matrix weights{{1, 3.4e38f}};  // above 3.396e38
    CHECK_NOTHROW(quantize(weights, DType::float32));
    CHECK_THROWS_WITH_AS(quantize(weights, DType::bfloat16),
                         "quantize: a matrix of (1, 2) holds inf or NaN", ValueError);
}

TEST_CASE("kernels_of has the dtypes of weight_dtypes and rejects all others") {
    for (const DType dtype : weight_dtypes) CHECK(kernels_of(dtype).dtype == dtype);
    CHECK_THROWS_WITH_AS(quantize(counting({2, 3}), DType::float16),
                         "quantize: chapter 15 has no weights of float16", ValueError);
    for (const DType dtype :
         {DType::float16, DType::q8_0, DType::q4_0, DType::q5_0, DType::q4_k, DType::q6_k})
        CHECK_THROWS_AS(kernels_of(dtype), ValueError);
}

TEST_CASE("rows: the stored bytes of adjacent rows") {
    const WeightMatrix quantized = quantize(counting({4, 3}), DType::bfloat16);
    CHECK(quantized.rows(0, 4).size() == 4 * 3 * 2);
    CHECK(quantized.rows(1, 2).data() == quantized.bytes.get() + 3 * 2);
    CHECK(quantized.rows(1, 2).size() == 2 * 3 * 2);
    CHECK(quantized.rows(4, 0).empty());
}

TEST_CASE("dequantize_row and dot_row: each row of a quantized matrix by itself") {
    Generator generator(16);
    for (const std::size_t width : {1u, 63u, 64u, 65u, 130u}) {
        const Matrix weights = randn({std::size_t{4}, width}, generator);
        Guarded inputs(random_values(width, generator), not_a_number);
        for (const DType dtype : weight_dtypes) {
            const WeightMatrix quantized = quantize(weights, dtype);
            const Matrix dequantized = dequantize(quantized);
            CHECK_CLOSE(dequantized, weights, 0.02);
            for (std::size_t row = 0; row < 4; ++row) {
                Guarded alone(std::vector<Real>(width), 77);
                quantized.dequantize_row(row, alone.values());
                CHECK(std::ranges::equal(alone.values(), view_of(dequantized)[row]));
                CHECK(alone.intact());
                const double gap =
                    quantized.kernels->dot(quantized.rows(row, 1), inputs.values()) -
                    sum_of_products(alone.values(), inputs.values());
                CHECK(std::abs(gap) <= tolerance_of(alone.values(), inputs.values()));
            }
        }
    }
}

TEST_CASE(
    "matmul_by_rows overwrites or accumulates all outputs of one token or a few, however the "
    "rows are divided") {
    Generator generator(17);
    const std::size_t chunks = 4 * num_threads();
    for (const std::size_t out :
         {std::size_t{1}, std::size_t{2}, std::size_t{3}, chunks - 1, chunks, chunks + 1,
          2 * chunks + 3, std::size_t{64}, std::size_t{65}, 9 * chunks + 1})
        for (const std::size_t in : {1u, 63u, 64u, 65u, 130u})
            for (const std::size_t N : {1u, 3u}) {
                const Matrix weights = randn({out, in}, generator);
                const Matrix inputs = randn({N, in}, generator);
                for (const DType dtype : weight_dtypes) {
                    const WeightMatrix quantized = quantize(weights, dtype);
                    const Matrix expected = exact_product(inputs, dequantize(quantized));
                    Guarded memory(std::vector<Real>(N * out, not_a_number), 77);
                    const MatrixView outputs{memory.values().data(), N, out, out};
                    MatmulWorkspace workspace;
                    matmul_by_rows(view_of(inputs), quantized, outputs, workspace);
                    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
                    matmul_by_rows(view_of(inputs), quantized, outputs, workspace,
                                   Update::accumulate);
                    CHECK_CLOSE(matrix_of(outputs), expected * Real(2), 2e-6);
                    matmul_by_rows(view_of(inputs), quantized, outputs, workspace,
                                   Update::overwrite);
                    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
                    CHECK(memory.intact());
                }
            }
}

using Multiply = void (*)(ConstMatrixView, const WeightMatrix&, MatrixView, MatmulWorkspace&,
                          Update);

// Inputs and outputs are columns of wider matrices; the others must stay as they are.
void check_multiply(Multiply multiply, const Matrix& wide, const Matrix& weights, DType dtype) {
    const std::size_t N = wide.shape(0), out = weights.shape(0), in = weights.shape(1);
    const WeightMatrix quantized = quantize(weights, dtype);
    const Matrix inputs = xt::view(wide, xt::all(), xt::range(2, in + 2));
    const Matrix expected = exact_product(inputs, dequantize(quantized));
    Matrix memory = xt::ones<Real>({N, out + 2}) * not_a_number;
    xt::view(memory, xt::all(), 0) = Real(77);
    xt::view(memory, xt::all(), out + 1) = Real(77);
    const MatrixView outputs = view_of(memory).columns(1, out);
    const ConstMatrixView rows = view_of(wide).columns(2, in);
    MatmulWorkspace workspace;
    multiply(rows, quantized, outputs, workspace, Update::overwrite);
    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
    multiply(rows, quantized, outputs, workspace, Update::accumulate);
    CHECK_CLOSE(matrix_of(outputs), expected * Real(2), 2e-6);
    multiply(rows, quantized, outputs, workspace, Update::overwrite);
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
    MatmulWorkspace workspace;
    for (const Multiply multiply : {Multiply(matmul_transposed), Multiply(matmul_by_rows)})
        for (const DType dtype : weight_dtypes) {
            const WeightMatrix quantized = quantize(counting({3, 4}), dtype);
            const auto call = [&](ConstMatrixView from, MatrixView to) {
                multiply(from, quantized, to, workspace, Update::overwrite);
            };
            const ConstMatrixView all_inputs = view_of(inputs);
            const MatrixView all_outputs = view_of(outputs);
            CHECK_NOTHROW(call(all_inputs, all_outputs));
            CHECK_THROWS_WITH_AS(call(all_inputs, all_outputs.columns(0, 2)),
                                 "matmul: weights of (3, 4) do not map (5, 4) to (5, 2)",
                                 ValueError);
            CHECK_THROWS_WITH_AS(call(all_inputs, all_outputs.rows(0, 4)),
                                 "matmul: weights of (3, 4) do not map (5, 4) to (4, 3)",
                                 ValueError);
            CHECK_THROWS_WITH_AS(call(all_inputs.columns(0, 3), all_outputs),
                                 "matmul: weights of (3, 4) do not map (5, 3) to (5, 3)",
                                 ValueError);
            CHECK_THROWS_WITH_AS(
                call(all_inputs.rows(0, 1).columns(0, 3), all_outputs.rows(0, 1)),
                "matmul: weights of (3, 4) do not map (1, 3) to (1, 3)", ValueError);
        }
}

TEST_CASE("MatmulWorkspace: nbytes counts dequantized weights and quantized inputs") {
    MatmulWorkspace workspace;
    CHECK(workspace.nbytes() == 0);
    workspace.dequantized.resize(10);
    CHECK(workspace.nbytes() == 40);
    workspace.quantized.resize(7);
    CHECK(workspace.nbytes() == 47);
}

namespace {

// Kernels of a made-up type: weights are 16-bit integers, and matmul_by_rows rounds the inputs
// to 32-bit integers.
template <class Integer>
void round_to_integers(std::span<const Real> numbers, std::span<std::byte> stored) {
    REQUIRE(stored.size() == numbers.size() * sizeof(Integer));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto integer = static_cast<Integer>(std::lround(numbers[i]));
        std::memcpy(&stored[i * sizeof integer], &integer, sizeof integer);
    }
}
template <class Integer>
Integer integer_at(std::span<const std::byte> stored, std::size_t i) {
    Integer integer;
    std::memcpy(&integer, &stored[i * sizeof integer], sizeof integer);
    return integer;
}

void int16_to_floats(std::span<const std::byte> row, std::span<Real> weights) {
    for (std::size_t i = 0; i < weights.size(); ++i)
        weights[i] = integer_at<std::int16_t>(row, i);
}
Real dot_int16(std::span<const std::byte> row, std::span<const Real> inputs) {
    std::vector<Real> weights(inputs.size());
    int16_to_floats(row, weights);
    return dot(weights, inputs);
}

// All outputs are NaN if the arguments do not fit together: doctest's assertions are not used
// on other threads.
void multiply_integers(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                       std::span<const std::byte> inputs, MatrixView outputs, Update update) {
    const bool fits = dtype == DType::float16 &&
                      rows.size() == outputs.num_columns * in_features * 2 &&
                      inputs.size() == outputs.num_rows * in_features * 4;
    for (std::size_t n = 0; n < outputs.num_rows; ++n)
        for (std::size_t row = 0; row < outputs.num_columns; ++row) {
            std::int64_t sum = 0;
            for (std::size_t i = 0; fits && i < in_features; ++i)
                sum += integer_at<std::int16_t>(rows, row * in_features + i) *
                       integer_at<std::int32_t>(inputs, n * in_features + i);
            Real& output = outputs[n][row];
            const Real product = fits ? static_cast<Real>(sum) : not_a_number;
            output = update == Update::accumulate ? output + product : product;
        }
}

std::size_t int32_bytes(std::size_t num_tokens, std::size_t in_features) {
    return num_tokens * in_features * 4;
}
void round_to_int32(ConstMatrixView inputs, std::span<std::byte> stored) {
    REQUIRE(stored.size() == inputs.num_rows * inputs.num_columns * 4);
    for (std::size_t n = 0; n < inputs.num_rows; ++n)
        round_to_integers<std::int32_t>(
            inputs[n], stored.subspan(n * inputs.num_columns * 4, inputs.num_columns * 4));
}

const QuantizedInputKernels integer_kernels = {int32_bytes, round_to_int32, multiply_integers};
const WeightKernels int16_kernels = {DType::float16, round_to_integers<std::int16_t>,
                                     int16_to_floats, dot_int16, &integer_kernels};

}  // namespace

TEST_CASE("matmul_by_rows computes with quantized inputs if the kernels have them") {
    Generator generator(22);
    for (const std::size_t out : {1u, 2u, 31u, 64u, 65u})
        for (const std::size_t in : {1u, 64u, 65u})
            for (const std::size_t N : {1u, 2u, 5u, 70u}) {
                const Matrix weights = randn({out, in}, generator) * Real(30);
                const Matrix wide = randn({N, in + 3}, generator) * Real(3);
                const Matrix inputs = xt::view(wide, xt::all(), xt::range(2, in + 2));
                Matrix rounded_weights = weights, rounded_inputs = inputs;
                for (Matrix* matrix : {&rounded_weights, &rounded_inputs})
                    for (Real& number : *matrix) number = Real(std::lround(number));
                const WeightMatrix quantized = quantize(weights, int16_kernels);
                CHECK(identical(dequantize(quantized), rounded_weights + Real(0)));

                // Integers of this size are exact in float32.
                const Matrix expected = exact_product(rounded_inputs, rounded_weights);
                Matrix memory = xt::ones<Real>({N, out + 2}) * Real(77);
                const MatrixView outputs = view_of(memory).columns(1, out);
                const ConstMatrixView rows = view_of(wide).columns(2, in);
                MatmulWorkspace workspace;
                matmul_by_rows(rows, quantized, outputs, workspace);
                CHECK_CLOSE(matrix_of(outputs), expected, 0);
                CHECK(workspace.quantized.size() == N * in * 4);
                CHECK(workspace.dequantized.empty());
                matmul_by_rows(rows, quantized, outputs, workspace, Update::accumulate);
                CHECK_CLOSE(matrix_of(outputs), expected * Real(2), 0);
                for (std::size_t n = 0; n < N; ++n)
                    CHECK((memory(n, 0) == 77 && memory(n, out + 1) == 77));

                // matmul_transposed, dot_row and dequantize_row read the inputs as they are.
                const Matrix unrounded = exact_product(inputs, rounded_weights);
                matmul_transposed(rows, quantized, outputs, workspace);
                CHECK_CLOSE(matrix_of(outputs), unrounded, 2e-6);
                matmul_transposed(rows, quantized, outputs, workspace, Update::accumulate);
                CHECK_CLOSE(matrix_of(outputs), unrounded * Real(2), 2e-6);

                // Kernels for many tokens round them there, too.
                QuantizedInputKernels for_many_tokens = integer_kernels;
                for_many_tokens.for_many_tokens = true;
                WeightKernels kernels = int16_kernels;
                kernels.quantized_inputs = &for_many_tokens;
                const WeightMatrix stored = quantize(weights, kernels);
                matmul_transposed(rows, stored, outputs, workspace);
                CHECK_CLOSE(matrix_of(outputs), expected, 0);

                // Kernels for more tokens than these do not.
                for_many_tokens.min_tokens = N;
                matmul_by_rows(rows, stored, outputs, workspace);
                CHECK_CLOSE(matrix_of(outputs), expected, 0);
                for_many_tokens.min_tokens = N + 1;
                matmul_by_rows(rows, stored, outputs, workspace);
                CHECK_CLOSE(matrix_of(outputs), unrounded, 2e-6);
                CHECK(std::abs(quantized.kernels->dot(quantized.rows(out - 1, 1), rows[N - 1]) -
                               unrounded(N - 1, out - 1)) <=
                      tolerance_of(view_of(rounded_weights)[out - 1], rows[N - 1]) + 1e-6);
            }
}

TEST_CASE("a smaller call after a larger one reads only its own quantized inputs") {
    const WeightMatrix quantized = quantize(counting({3, 8}), int16_kernels);
    const Matrix many = counting({9, 8}), one = xt::ones<Real>({1, 8});
    Matrix products = counting({9, 3});
    MatmulWorkspace workspace;
    matmul_by_rows(view_of(many), quantized, view_of(products), workspace);
    CHECK_CLOSE(products, exact_product(many, dequantize(quantized)), 0);
    matmul_by_rows(view_of(one), quantized, view_of(products).rows(0, 1), workspace);
    CHECK_CLOSE(matrix_of(view_of(products).rows(0, 1)),
                exact_product(one, dequantize(quantized)), 0);
}
