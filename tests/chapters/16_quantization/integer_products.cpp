#include "chapters/16_quantization/kernels/integer_products.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "chapters/16_quantization/block_types.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

std::vector<std::size_t> sizes_of(DType dtype) {
    if (block_size(dtype) == 256) return {256, 512, 768, 1536};
    return {32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 480, 512, 1536};
}

// Where the scales of float16 are in a block.
std::vector<std::size_t> half_offsets(DType dtype) {
    if (dtype == DType::q4_k) return {0, 2};
    if (dtype == DType::q6_k) return {208};
    return {0};
}

// Rows of random bytes, so that all bits of all weights occur; the scales are about 1. They are
// stored in exactly the bytes that they need, so that AddressSanitizer reports any access
// beyond the end.
std::vector<std::byte> random_rows(DType dtype, std::size_t in, std::size_t out,
                                   Generator& generator) {
    std::vector<std::byte> rows(out * bytes_per_row(dtype, in));
    for (std::byte& byte : rows) byte = static_cast<std::byte>(generator.next_uniform() * 256);
    for (std::size_t block = 0; block < rows.size(); block += bytes_per_block(dtype))
        for (const std::size_t offset : half_offsets(dtype)) {
            const Half scale(static_cast<float>(generator.next_uniform() * 2 - 1));
            std::memcpy(&rows[block + offset], &scale, sizeof scale);
        }
    return rows;
}

// As many rows as fill whole groups.
std::vector<std::byte> interleaved(DType dtype, const std::vector<std::byte>& rows,
                                   std::size_t in) {
    const std::size_t row_size = bytes_per_row(dtype, in), lanes = num_interleaved_rows();
    std::vector<std::byte> result(ceil_div(rows.size() / row_size, lanes) * lanes * row_size);
    interleave_rows(dtype, rows, in, result);
    return result;
}

std::vector<std::byte> quantized(ConstMatrixView inputs) {
    std::vector<std::byte> result(quantized_input_bytes(inputs.num_rows, inputs.num_columns));
    quantize_inputs(inputs, result);
    return result;
}

// The inputs that the integers of a quantized row stand for: absmax / 127 is the scale of 32.
std::vector<Real> rounded(std::span<const Real> inputs) {
    std::vector<Real> result;
    for (std::size_t begin = 0; begin < inputs.size(); begin += 32) {
        Real absmax = 0;
        for (const Real input : inputs.subspan(begin, 32))
            absmax = std::max(absmax, std::abs(input));
        const Real scale = absmax / 127, inverse = scale == 0 ? 0 : 1 / scale;
        for (const Real input : inputs.subspan(begin, 32))
            result.push_back(scale * std::nearbyint(input * inverse));
    }
    return result;
}

struct Product {
    DType dtype;
    std::size_t in, out, num_tokens;
    Matrix inputs;  // (N, in)
    std::vector<std::byte> rows, quantized_inputs;
    Matrix sums, magnitudes;  // (N, out), of the rounded weights and the rounded inputs

    Product(DType dtype_, std::size_t in_, std::size_t out_, std::size_t num_tokens_,
            Generator& generator)
        : dtype(dtype_),
          in(in_),
          out(out_),
          num_tokens(num_tokens_),
          inputs(randn({num_tokens_, in_}, generator)),
          rows(random_rows(dtype_, in_, out_, generator)),
          quantized_inputs(quantized(view_of(std::as_const(inputs)))),
          sums(xt::zeros<Real>({num_tokens_, out_})),
          magnitudes(sums) {
        std::vector<std::vector<Real>> tokens;
        for (std::size_t n = 0; n < num_tokens; ++n)
            tokens.push_back(rounded(view_of(inputs)[n]));
        std::vector<Real> weights(in);
        for (std::size_t r = 0; r < out; ++r) {
            const std::size_t row_size = bytes_per_row(dtype, in);
            dequantize_row(dtype, std::span(rows).subspan(r * row_size, row_size), weights);
            for (std::size_t n = 0; n < num_tokens; ++n) {
                sums(n, r) = Real(sum_of_products(weights, tokens[n]));
                magnitudes(n, r) = Real(1e6 * tolerance_of(weights, tokens[n]));
            }
        }
    }
    void multiply_into(MatrixView outputs, Update update) const {
        matmul_quantized(dtype, interleaved(dtype, rows, in), in, quantized_inputs, outputs,
                         update);
    }
    // Number of wrong outputs, of "times" the product.
    int count_wrong(ConstMatrixView outputs, Real times) const {
        int count = 0;
        for (const auto [n, r] : every_index(num_tokens, out))
            count += !(std::abs(outputs[n][r] - times * sums(n, r)) <=
                       times * Real(1e-5) * magnitudes(n, r));
        return count;
    }
};

// Computes a product, and once more to add it. The outputs are columns of a wider matrix.
void check(const Product& product) {
    INFO(to_text(product.dtype), ": ", product.num_tokens, " tokens, ", product.in, " to ",
         product.out);
    Matrix memory = xt::ones<Real>({product.num_tokens, product.out + 2}) * Real(77);
    const MatrixView outputs = view_of(memory).columns(1, product.out);
    product.multiply_into(outputs, Update::overwrite);
    CHECK(product.count_wrong(outputs, 1) == 0);
    product.multiply_into(outputs, Update::accumulate);
    CHECK(product.count_wrong(outputs, 2) == 0);
    for (std::size_t n = 0; n < product.num_tokens; ++n)
        CHECK((memory(n, 0) == 77 && memory(n, product.out + 1) == 77));
}

// The product of 96 inputs with weights of 1.
Real sum_of(const std::vector<Real>& inputs, std::size_t num_tokens) {
    const std::size_t row_size = bytes_per_row(DType::q8_0, 96);
    std::vector<std::byte> row(16 * row_size, std::byte{1});
    const Half one(1.0f);
    for (std::size_t block = 0; block < row.size(); block += sizeof(BlockQ8_0))
        std::memcpy(&row[block], &one, sizeof one);
    Matrix tokens = xt::ones<Real>({num_tokens, std::size_t{96}});
    std::ranges::copy(inputs, &tokens(num_tokens - 1, 0));
    Matrix outputs = xt::zeros<Real>({num_tokens, std::size_t{16}});
    matmul_quantized(DType::q8_0, interleaved(DType::q8_0, row, 96), 96,
                     quantized(view_of(std::as_const(tokens))), view_of(outputs),
                     Update::overwrite);
    return outputs(num_tokens - 1, 0);
}

}  // namespace

TEST_CASE("interleave_rows: what stands at an offset in each row follows for all rows") {
    // Bytes count from 0 in each row of two blocks; each row has another upper half.
    const std::size_t lanes = num_interleaved_rows();
    const auto place = [&](DType dtype, std::size_t offset, std::size_t lane) {
        std::vector<std::byte> rows(lanes * bytes_per_row(dtype, 2 * block_size(dtype)));
        const std::size_t row_size = rows.size() / lanes;
        rows[lane * row_size + offset] = std::byte{1};
        const std::vector<std::byte> result = interleaved(dtype, rows, 2 * block_size(dtype));
        REQUIRE(result.size() == rows.size());
        return std::size_t(std::ranges::find(result, std::byte{1}) - result.begin());
    };
    // Scales of two bytes, everything else by four.
    CHECK(place(DType::q8_0, 0, 3) == 6);
    CHECK(place(DType::q8_0, 1, 3) == 7);
    CHECK(place(DType::q8_0, 2, 3) == 2 * lanes + 12);
    CHECK(place(DType::q8_0, 7, 3) == 6 * lanes + 13);
    CHECK(place(DType::q4_0, 18, 2) == 18 * lanes + 4);  // the scale of the second block
    CHECK(place(DType::q5_0, 5, 1) == 2 * lanes + 7);
    CHECK(place(DType::q4_k, 3, 1) == 2 * lanes + 3);  // the second scale
    CHECK(place(DType::q4_k, 4, 1) == 4 * lanes + 4);
    CHECK(place(DType::q6_k, 1, 2) == 9);
    CHECK(place(DType::q6_k, 208, 2) == 208 * lanes + 4);
    CHECK(place(DType::q6_k, 210, 2) == 210 * lanes + 8);
}

TEST_CASE("copy_interleaved_row is the inverse of interleave_rows") {
    Generator generator(6);
    const std::size_t lanes = num_interleaved_rows();
    for (const DType dtype : block_dtypes) {
        INFO(to_text(dtype));
        const std::size_t in = 2 * block_size(dtype), num_rows = lanes + 3;
        const std::vector<std::byte> rows = random_rows(dtype, in, num_rows, generator);
        const std::vector<std::byte> groups = interleaved(dtype, rows, in);
        const std::size_t row_size = bytes_per_row(dtype, in);
        for (std::size_t r = 0; r < 2 * lanes; ++r) {
            std::vector<std::byte> row(row_size);
            copy_interleaved_row(
                dtype,
                std::span(groups).subspan(r / lanes * lanes * row_size, lanes * row_size),
                r % lanes, row);
            if (r < num_rows)
                CHECK(std::ranges::equal(row, std::span(rows).subspan(r * row_size, row_size)));
            else  // the last group is filled up
                CHECK(std::ranges::all_of(row,
                                          [](std::byte byte) { return byte == std::byte{0}; }));
        }
    }
}

TEST_CASE("dequantize_interleaved equals dequantize_row") {
    Generator generator(1);
    for (const DType dtype : block_dtypes)
        for (const std::size_t in : sizes_of(dtype))
            for (const std::size_t num_rows : {num_interleaved_rows(), std::size_t{3}}) {
                INFO(to_text(dtype), ", ", num_rows, " rows of ", in, " weights");
                const std::vector<std::byte> rows = random_rows(dtype, in, num_rows, generator);
                Matrix actual = xt::ones<Real>({num_rows + 1, in}) * Real(77);
                dequantize_interleaved(dtype, interleaved(dtype, rows, in),
                                       view_of(actual).rows(0, num_rows));
                std::vector<Real> expected(in);
                const std::size_t row_size = bytes_per_row(dtype, in);
                for (const auto [r, i] : every_index(num_rows, in)) {
                    if (i == 0)
                        dequantize_row(dtype, std::span(rows).subspan(r * row_size, row_size),
                                       expected);
                    CHECK(std::abs(actual(r, i) - expected[i]) <=
                          1e-6 * std::abs(expected[i]) + 5e-4);
                }
                CHECK(actual(num_rows, 0) == 77);
            }
}

TEST_CASE("matmul_quantized: the products of the rounded weights and the rounded inputs") {
    Generator generator(2);
    for (const DType dtype : block_dtypes)
        for (const std::size_t in : sizes_of(dtype))
            for (const std::size_t num_tokens : {1u, 2u, 5u, 8u, 17u})
                check(Product(dtype, in, 9, num_tokens, generator));
}

TEST_CASE("matmul_quantized: any number of rows and tokens") {
    Generator generator(3);
    for (const DType dtype : block_dtypes)
        for (const std::size_t out : {1u, 2u, 3u, 4u, 5u, 8u, 15u, 16u, 17u, 35u, 64u})
            for (const std::size_t num_tokens : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 11u, 16u, 33u})
                check(Product(dtype, block_size(dtype) == 256 ? 512 : 96, out, num_tokens,
                              generator));
}

TEST_CASE("matmul_quantized: 1 to 17 tokens, and rows of one block") {
    Generator generator(5);
    for (const DType dtype : block_dtypes)
        for (std::size_t num_tokens = 1; num_tokens <= 17; ++num_tokens)
            for (const std::size_t out : {1u, 7u, 15u, 16u, 17u, 31u, 32u, 33u})
                check(Product(dtype, block_size(dtype), out, num_tokens, generator));
}

TEST_CASE("matmul_quantized: sums of the largest integers neither overflow nor saturate") {
    // x86's maddubs sums two products in 16 bits, and saturates beyond 32767.
    constexpr std::size_t in = 512;
    for (const DType dtype : block_dtypes)
        for (const int byte : {0x00, 0x7F, 0x80, 0xFF})  // q8_0: 0, 127, -128, -1
            for (const Real input_sign : {Real(1), Real(-1)})
                for (const std::size_t num_tokens : {1u, 2u, 3u, 8u}) {
                    INFO(to_text(dtype), ", bytes of ", byte, ", inputs of ", input_sign);
                    const std::size_t row_size = bytes_per_row(dtype, in);
                    std::vector<std::byte> rows(3 * row_size, std::byte(byte));
                    const Half one(1.0f);
                    for (std::size_t i = 0; i < rows.size(); i += bytes_per_block(dtype))
                        for (const std::size_t offset : half_offsets(dtype))
                            std::memcpy(&rows[i + offset], &one, sizeof one);
                    std::vector<Real> weights(in);
                    dequantize_row(dtype, std::span(rows).first(row_size), weights);
                    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
                    const Matrix inputs = xt::ones<Real>({num_tokens, in}) * input_sign;
                    Matrix outputs = xt::zeros<Real>({num_tokens, std::size_t{3}});
                    matmul_quantized(dtype, interleaved(dtype, rows, in), in,
                                     quantized(view_of(inputs)), view_of(outputs),
                                     Update::overwrite);
                    for (const Real output : outputs)
                        CHECK(output == doctest::Approx(input_sign * sum).epsilon(1e-5));
                }
}

TEST_CASE("quantize_inputs rounds to the nearest multiple of the scale of 32 inputs") {
    Generator generator(4);
    const std::vector<Real> inputs = random_values(96, generator);
    const std::vector<Real> expected = rounded(inputs);
    const std::vector<std::byte> result = quantized({inputs.data(), 1, 96, 96});
    for (std::size_t i = 0; i < 96; ++i) {
        // Weights of 0, except one of 1.
        std::vector<std::byte> row(bytes_per_row(DType::q8_0, 96), std::byte{0});
        const Half one(1.0f);
        for (std::size_t block = 0; block < 3; ++block)
            std::memcpy(&row[block * sizeof(BlockQ8_0)], &one, sizeof one);
        row[i / 32 * sizeof(BlockQ8_0) + 2 + i % 32] = std::byte{1};
        Real output = 0;
        matmul_quantized(DType::q8_0, interleaved(DType::q8_0, row, 96), 96, result,
                         {&output, 1, 1, 1}, Update::overwrite);
        CHECK(std::abs(output - expected[i]) < 2e-4);
        Real absmax = 0;
        for (const Real input : std::span(inputs).subspan(i / 32 * 32, 32))
            absmax = std::max(absmax, std::abs(input));
        CHECK(std::abs(output - inputs[i]) <= absmax / 254 + 2e-4);
    }
}

TEST_CASE("quantize_inputs: blocks of zeros and tiny inputs give zeros, inf and NaN give NaN") {
    for (const std::size_t num_tokens : {1u, 4u, 8u, 9u}) {
        INFO(num_tokens, " tokens");
        CHECK(sum_of(std::vector<Real>(96, 0), num_tokens) == 0);
        for (const int exponent : {-149, -140, -130, -126, -120}) {
            const Real tiny = std::ldexp(Real(1), exponent);
            const Real sum = sum_of(std::vector<Real>(96, tiny), num_tokens);
            CHECK((sum >= 0 && sum <= 97 * tiny));
        }
        CHECK(sum_of(std::vector<Real>(96, 1e30f), num_tokens) ==
              doctest::Approx(96e30).epsilon(1e-5));
        std::vector<Real> one_block(96, 0);
        for (std::size_t i = 32; i < 64; ++i) one_block[i] = 2;
        CHECK(sum_of(one_block, num_tokens) == doctest::Approx(64).epsilon(1e-5));
        for (const Real bad : {infinity, -infinity, not_a_number})
            for (const std::size_t i : {0u, 15u, 33u, 70u, 95u}) {
                std::vector<Real> inputs(96, 1);
                inputs[i] = bad;
                CHECK(std::isnan(sum_of(inputs, num_tokens)));
            }
    }
}

TEST_CASE("quantized_input_bytes: a byte per input, and a scale and a sum per 32 and per 16") {
    // 256 + 2 * (8 + 16) * 4 = 448 bytes, 7 lines of 64; 96 + 2 * (3 + 6) * 4 = 168 need 3
    // lines.
    CHECK(quantized_input_bytes(1, 256) == 448);
    CHECK(quantized_input_bytes(3, 256) == 3 * 448);
    CHECK(quantized_input_bytes(2, 96) == 2 * 192);
}
