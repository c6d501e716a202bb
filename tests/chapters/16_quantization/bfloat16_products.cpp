#include "chapters/16_quantization/kernels/bfloat16_products.hpp"

#include <cstring>

#include "chapters/16_quantization/fake_quantize.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

Real rounded(Real value) { return to_float(to_bfloat16(value)); }

// Rows of bfloat16, in exactly the bytes that they need, so that AddressSanitizer reports any
// access beyond the end.
std::vector<std::byte> bytes_of(const Matrix& weights) {
    std::vector<std::byte> bytes(weights.size() * sizeof(Bfloat16));
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Bfloat16 value = to_bfloat16(weights.data()[i]);
        std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
    }
    return bytes;
}

// The rounded inputs, in memory that held NaN before.
std::vector<std::byte> rounded_inputs(ConstMatrixView inputs) {
    std::vector<std::byte> bytes(bfloat16_input_bytes(inputs.num_rows, inputs.num_columns),
                                 std::byte{0xFF});
    round_to_bfloat16(inputs, bytes);
    return bytes;
}

Matrix product(const Matrix& inputs, const Matrix& weights) {
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weights.shape(0)});
    matmul_bfloat16(bytes_of(weights), weights.shape(1), rounded_inputs(view_of(inputs)),
                    view_of(outputs), Update::overwrite);
    return outputs;
}

// The number of outputs that are not "times" the product of the rounded matrices.
int count_wrong(ConstMatrixView inputs, const Matrix& weights, ConstMatrixView outputs,
                double times) {
    int count = 0;
    for (const auto [n, row] : every_index(inputs.num_rows, weights.shape(0))) {
        double sum = 0, magnitude = 0;
        for (std::size_t i = 0; i < inputs.num_columns; ++i) {
            const double term =
                double(rounded(inputs[n][i])) * double(rounded(weights(row, i)));
            sum += term;
            magnitude += std::abs(term);
        }
        count += !(std::abs(outputs[n][row] - times * sum) <= times * 2e-6 * magnitude);
    }
    return count;
}

// Computes a product, and once more to add it. Inputs and outputs are columns of wider
// matrices.
void check(std::size_t num_tokens, std::size_t in, std::size_t out, Generator& generator) {
    INFO(num_tokens, " tokens, ", in, " to ", out);
    const Matrix weights = randn({out, in}, generator);
    const Matrix wide_inputs = randn({num_tokens, in + 3}, generator);
    const ConstMatrixView inputs = view_of(wide_inputs).columns(1, in);
    const std::vector<std::byte> rows = bytes_of(weights);
    const std::vector<std::byte> input_bytes = rounded_inputs(inputs);

    Matrix memory = xt::ones<Real>({num_tokens, out + 2}) * Real(77);
    const MatrixView outputs = view_of(memory).columns(1, out);
    matmul_bfloat16(rows, in, input_bytes, outputs, Update::overwrite);
    CHECK(count_wrong(inputs, weights, outputs, 1) == 0);
    matmul_bfloat16(rows, in, input_bytes, outputs, Update::accumulate);
    CHECK(count_wrong(inputs, weights, outputs, 2) == 0);
    for (std::size_t n = 0; n < num_tokens; ++n)
        CHECK((memory(n, 0) == 77 && memory(n, out + 1) == 77));
}

// The product of an input with a weight of 1. The input is not copied to a tensor: that could
// change the bits of a NaN.
Real with_weight_of_one(const Real& input) {
    Real output = 0;
    matmul_bfloat16(bytes_of(Matrix{{1}}), 1, rounded_inputs({&input, 1, 1, 1}),
                    {&output, 1, 1, 1}, Update::overwrite);
    return output;
}

}  // namespace

TEST_CASE("matmul_bfloat16: the products of the rounded weights and the rounded inputs") {
    Generator generator(1);
    for (const std::size_t in : {1u, 2u, 3u, 15u, 16u, 31u, 64u, 127u, 255u, 256u, 257u, 258u,
                                 384u, 511u, 513u, 1536u})
        for (const std::size_t num_tokens : {1u, 2u, 16u, 19u})
            check(num_tokens, in, 9, generator);
}

TEST_CASE("matmul_bfloat16: any number of rows and tokens") {
    Generator generator(2);
    for (const std::size_t out : {1u, 2u, 7u, 8u, 9u, 15u, 16u, 17u, 64u})
        for (std::size_t num_tokens = 1; num_tokens <= 17; ++num_tokens)
            for (const std::size_t in : {6u, 7u}) check(num_tokens, in, out, generator);
    for (const std::size_t num_tokens : {31u, 32u, 33u, 70u})
        check(num_tokens, 65, 21, generator);
}

TEST_CASE("matmul_bfloat16: small integers give the exact product") {
    const Matrix weights = counting({13, 11}) - Real(70),
                 inputs = counting({18, 11}) - Real(99);
    CHECK_CLOSE(product(inputs, weights), exact_product(inputs, weights), 0);
}

TEST_CASE("round_to_bfloat16 rounds as to_bfloat16, ties to even") {
    const Real step = std::ldexp(Real(1), -7);  // between 1 and 2
    CHECK(with_weight_of_one(1 + step / 2) == 1);
    CHECK(with_weight_of_one(1 + 3 * step / 2) == 1 + 2 * step);
    CHECK(with_weight_of_one(-1 - step / 2) == -1);
    CHECK(with_weight_of_one(std::nextafter(1 + step / 2, Real(2))) == 1 + step);
    CHECK(with_weight_of_one(std::nextafter(1 + 3 * step / 2, Real(0))) == 1 + step);
    CHECK(with_weight_of_one(3.39e38f) == rounded(3.39e38f));
    CHECK(with_weight_of_one(std::numeric_limits<Real>::max()) == infinity);
    CHECK(with_weight_of_one(0) == 0);
    CHECK(with_weight_of_one(std::numeric_limits<Real>::min()) ==
          std::numeric_limits<Real>::min());

    // Random bits; the exponents are such that no product is a denormal number.
    Generator generator(3);
    for (int i = 0; i < 1000; ++i) {
        const Real value =
            std::ldexp(Real(generator.next_uniform() * 2 - 1), int(i % 250) - 125);
        if (std::abs(value) > 1e-37f) CHECK(with_weight_of_one(value) == rounded(value));
    }
}

TEST_CASE("matmul_bfloat16: denormal numbers may become 0") {
    for (const int exponent : {-149, -140, -130, -127}) {
        const Real tiny = std::ldexp(Real(1), exponent);
        const Real product = with_weight_of_one(tiny);
        CHECK((product == 0 || product == rounded(tiny)));
    }
}

TEST_CASE("matmul_bfloat16: inf and NaN of a token or a row stay in its outputs") {
    Matrix weights = xt::ones<Real>({10, 5}), inputs = xt::ones<Real>({18, 5});
    inputs(3, 4) = infinity;
    inputs(7, 0) = not_a_number;
    inputs(17, 1) = -infinity;
    weights(2, 3) = infinity;
    weights(5, 0) = infinity;  // adjacent to the last weight of row 4
    weights(9, 4) = not_a_number;
    const Matrix outputs = product(inputs, weights);
    for (const std::array<std::size_t, 2>& index : every_index(18, 10)) {
        const std::size_t n = index[0], row = index[1];
        INFO("token ", n, ", row ", row);
        const bool has_infinity = row == 2 || row == 5;
        const bool has_nan = n == 7 || row == 9 || (n == 17 && has_infinity);
        CHECK(std::isnan(outputs(n, row)) == has_nan);
        if (has_nan) continue;
        if (n == 17)
            CHECK(outputs(n, row) == -infinity);
        else
            CHECK(outputs(n, row) == (n == 3 || has_infinity ? infinity : Real(5)));
    }
    // A NaN whose upper half alone would be infinity.
    const Real nan = std::bit_cast<Real>(0x7F800001u);
    CHECK(std::isnan(with_weight_of_one(nan)));
    CHECK(std::isnan(with_weight_of_one(std::bit_cast<Real>(0xFFFFFFFFu))));
}

TEST_CASE("kernels of bfloat16 round the inputs of several tokens if the processor can") {
    const WeightKernels& exact = quantization_kernels(DType::bfloat16, Activations::float32);
    const WeightKernels& kernels = quantization_kernels(DType::bfloat16);
    CHECK(exact.quantized_inputs == nullptr);
    CHECK((kernels.quantized_inputs != nullptr) == has_avx512_bf16());

    Generator generator(4);
    const Matrix weights = randn({40, 33}, generator), inputs = randn({20, 33}, generator);
    const WeightMatrix stored = quantize(weights, kernels);
    const Matrix restored = dequantize(stored);
    CHECK(identical(restored, dequantize(quantize(weights, exact))));
    Matrix expected_inputs = inputs;
    if (has_avx512_bf16())
        for (Real& value : expected_inputs) value = rounded(value);
    const Matrix expected = exact_product(expected_inputs, restored);

    Matrix outputs = xt::zeros<Real>({20, 40});
    MatmulWorkspace workspace;
    matmul_transposed(view_of(inputs), stored, view_of(outputs), workspace);
    CHECK_CLOSE(outputs, expected, 1e-6);
    outputs.fill(0);
    matmul_by_rows(view_of(inputs), stored, view_of(outputs), workspace);
    CHECK_CLOSE(outputs, expected, 1e-6);

    // The inputs of a single token are not rounded.
    matmul_by_rows(view_of(inputs).rows(0, 1), stored, view_of(outputs).rows(0, 1), workspace);
    CHECK_CLOSE(matrix_of(view_of(std::as_const(outputs)).rows(0, 1)),
                exact_product(Matrix(xt::view(inputs, xt::range(0, 1))), restored), 1e-6);
}

TEST_CASE("rounding the inputs to bfloat16 changes the logits by less than a percent") {
    const std::vector<Id> ids = some_ids(40);
    Generator generator(5);
    const Model model = make_test_model(odd_config(), generator);
    const FastModel exact = quantize_model(model, DType::bfloat16, Activations::float32);
    const FastModel rounding = quantize_model(model, DType::bfloat16);
    const Matrix expected = in_one_call(exact, ids);
    CHECK_CLOSE(token_by_token(rounding, ids), expected, 1e-5);
    for (const std::vector<std::size_t>& chunks :
         std::vector<std::vector<std::size_t>>{{40}, {2, 16, 1, 3, 18}}) {
        const double error = relative_error(in_chunks(rounding, ids, chunks), expected);
        INFO("error: ", error);
        CHECK(error < 0.01);
        CHECK((error > 1e-4) == has_avx512_bf16());
    }
}
