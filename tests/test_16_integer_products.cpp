#include "chapters/16_quantization/integer_products.hpp"

#include <cmath>

#include "chapters/16_quantization/quantizers.hpp"
#include "common/tensors/aligned_allocator.hpp"
#include "tests/fast_helpers.hpp"

using namespace llm;

namespace {

const std::array block_dtypes = {DType::q8_0, DType::q4_0, DType::q5_0, DType::q4_k,
                                 DType::q6_k};

std::vector<std::size_t> sizes_of(DType dtype) {
    if (block_size(dtype) == 256) return {256, 512, 768, 1536};
    return {32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 480, 512, 1536};
}

// The inputs that the integers of a quantized row stand for: absmax / 127 is the scale of 32.
std::vector<Real> rounded(std::span<const Real> inputs) {
    std::vector<Real> result;
    for (std::size_t begin = 0; begin < inputs.size(); begin += 32) {
        Real absmax = 0;
        for (const Real input : inputs.subspan(begin, 32))
            absmax = std::max(absmax, std::abs(input));
        const Real scale = absmax / 127;
        for (const Real input : inputs.subspan(begin, 32))
            result.push_back(scale == 0 ? 0 : scale * std::nearbyint(input * (1 / scale)));
    }
    return result;
}

// Quantized rows of exactly the bytes that they need, so that AddressSanitizer sees any access
// beyond the end.
struct Product {
    DType dtype;
    std::size_t in, out, num_tokens;
    Matrix weights, inputs;  // (out, in), (N, in)
    std::vector<std::byte> rows, quantized;

    Product(DType dtype_, std::size_t in_, std::size_t out_, std::size_t num_tokens_,
            Generator& generator)
        : dtype(dtype_),
          in(in_),
          out(out_),
          num_tokens(num_tokens_),
          weights(randn({out_, in_}, generator)),
          inputs(randn({num_tokens_, in_}, generator)),
          rows(out_ * bytes_per_row(dtype_, in_)),
          quantized(num_tokens_ * quantized_input_bytes(in_)) {
        for (std::size_t row = 0; row < out; ++row) {
            const auto bytes = std::span(rows).subspan(row * bytes_per_row(dtype, in),
                                                       bytes_per_row(dtype, in));
            quantize_row(dtype, view_of(weights)[row], bytes);
            dequantize_row(dtype, bytes, view_of(weights)[row]);
        }
        for (std::size_t n = 0; n < num_tokens; ++n)
            quantize_inputs(view_of(inputs)[n],
                            std::span(quantized).subspan(n * quantized_input_bytes(in),
                                                         quantized_input_bytes(in)));
    }
    double expected(std::size_t n, std::size_t row) const {
        return sum_of_products(view_of(weights)[row], rounded(view_of(inputs)[n]));
    }
    double tolerance(std::size_t n, std::size_t row) const {
        return 4 * tolerance_of(view_of(weights)[row], rounded(view_of(inputs)[n])) + 1e-5;
    }
};

}  // namespace

TEST_CASE("unpack and dequantize_by_unpacking equal dequantize_row") {
    Generator generator(1);
    for (const DType dtype : block_dtypes)
        for (const std::size_t in : sizes_of(dtype)) {
            INFO(to_text(dtype), ", ", in, " weights");
            const std::vector<Real> weights = random_values(in, generator);
            std::vector<std::byte> row(bytes_per_row(dtype, in));
            quantize_row(dtype, weights, row);
            std::vector<Real> expected(in), actual(in, 77);
            dequantize_row(dtype, row, expected);
            dequantize_by_unpacking(dtype, row, actual);
            for (std::size_t i = 0; i < in; ++i)
                CHECK(actual[i] == doctest::Approx(expected[i]).epsilon(2e-5));
        }
}

TEST_CASE("matmul_quantized: the products of the rounded weights and the rounded inputs") {
    Generator generator(2);
    for (const DType dtype : block_dtypes)
        for (const std::size_t in : sizes_of(dtype))
            for (const std::size_t out : {1u, 3u, 4u, 9u})
                for (const std::size_t num_tokens : {1u, 2u, 5u, 16u}) {
                    INFO(to_text(dtype), ": ", num_tokens, " tokens, ", in, " to ", out);
                    const Product product(dtype, in, out, num_tokens, generator);
                    // The outputs are columns of a wider matrix, whose others stay.
                    Matrix memory = xt::ones<Real>({num_tokens, out + 2}) * Real(77);
                    const MatrixView outputs = view_of(memory).columns(1, out);
                    matmul_quantized(dtype, product.rows, in, product.quantized, outputs,
                                     Update::overwrite);
                    for (const auto [n, row] : every_index(num_tokens, out))
                        CHECK(std::abs(outputs[n][row] - product.expected(n, row)) <=
                              product.tolerance(n, row));
                    matmul_quantized(dtype, product.rows, in, product.quantized, outputs,
                                     Update::accumulate);
                    for (const auto [n, row] : every_index(num_tokens, out))
                        CHECK(std::abs(outputs[n][row] - 2 * product.expected(n, row)) <=
                              2 * product.tolerance(n, row));
                    for (std::size_t n = 0; n < num_tokens; ++n)
                        CHECK((memory(n, 0) == 77 && memory(n, out + 1) == 77));
                }
}

TEST_CASE("matmul_quantized: largest integers of both signs do not overflow") {
    for (const Real weight_sign : {Real(1), Real(-1)})
        for (const Real input_sign : {Real(1), Real(-1)})
            for (const DType dtype : block_dtypes) {
                INFO(to_text(dtype));
                const std::vector<Real> weights(512, weight_sign), inputs(512, input_sign);
                std::vector<std::byte> row(bytes_per_row(dtype, 512));
                quantize_row(dtype, weights, row);
                std::vector<std::byte> quantized(quantized_input_bytes(512));
                quantize_inputs(inputs, quantized);
                Real output = 0;
                matmul_quantized(dtype, row, 512, quantized, {&output, 1, 1, 1},
                                 Update::overwrite);
                CHECK(output == doctest::Approx(512 * weight_sign * input_sign).epsilon(0.01));
            }
}

TEST_CASE("quantize_inputs: blocks of zeros and tiny inputs give zeros, inf and NaN give NaN") {
    std::vector<std::byte> row(bytes_per_row(DType::q8_0, 96));
    quantize_row(DType::q8_0, std::vector<Real>(96, 1), row);
    const auto product = [&](const std::vector<Real>& inputs) {
        std::vector<std::byte> quantized(quantized_input_bytes(96));
        quantize_inputs(inputs, quantized);
        Real output = 77;
        matmul_quantized(DType::q8_0, row, 96, quantized, {&output, 1, 1, 1},
                         Update::overwrite);
        return output;
    };
    CHECK(product(std::vector<Real>(96, 0)) == 0);
    CHECK(std::abs(product(std::vector<Real>(96, std::ldexp(Real(1), -149)))) < 1e-30f);
    std::vector<Real> one_block(96, 0);
    for (std::size_t i = 32; i < 64; ++i) one_block[i] = 2;
    CHECK(product(one_block) == doctest::Approx(64).epsilon(1e-3));
    for (const Real bad : {infinity, -infinity, not_a_number}) {
        std::vector<Real> inputs(96, 1);
        inputs[70] = bad;
        CHECK(std::isnan(product(inputs)));
    }
}
