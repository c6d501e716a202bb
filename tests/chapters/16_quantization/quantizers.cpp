#include "chapters/16_quantization/quantizers.hpp"

#include <bit>
#include <cmath>
#include <map>

#include "common/numbers/random.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

std::vector<Real> restored(DType dtype, std::span<const Real> weights) {
    std::vector<std::byte> row(bytes_per_row(dtype, weights.size()));
    quantize_row(dtype, weights, row);
    std::vector<Real> result(weights.size());
    dequantize_row(dtype, row, result);
    return result;
}

std::vector<Real> row_of(const Matrix& matrix, std::size_t row) {
    return {&matrix(row, 0), &matrix(row, 0) + matrix.shape(1)};
}

std::vector<Real> random_row(std::size_t size, Generator& generator, Real spread = 1) {
    std::vector<Real> values(size);
    generator.fill_normal(values);
    for (Real& value : values) value *= spread;
    return values;
}

double squared_error(std::span<const Real> a, std::span<const Real> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
    return sum;
}

Real absmax_of(std::span<const Real> weights) {
    Real absmax = 0;
    for (const Real weight : weights) absmax = std::max(absmax, std::abs(weight));
    return absmax;
}

std::string fixture_name(DType dtype) {
    std::string name(to_text(dtype));
    for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
    return "gguf/quantizers_" + name;
}

}  // namespace

TEST_CASE("quantize_row: q8_0, q4_0 and q5_0 equal llama.cpp's in every bit") {
    const Matrix weights = fixture<2>("gguf/quantizers_weights");
    for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q5_0}) {
        INFO(to_text(dtype));
        const Matrix expected = fixture<2>(fixture_name(dtype));
        for (std::size_t row = 0; row < weights.shape(0); ++row)
            CHECK(restored(dtype, row_of(weights, row)) == row_of(expected, row));
    }
}

TEST_CASE("quantize_row: the errors of q4_k and q6_k are at most those of llama.cpp") {
    const Matrix weights = fixture<2>("gguf/quantizers_weights");
    for (const DType dtype : {DType::q4_k, DType::q6_k}) {
        INFO(to_text(dtype));
        const Matrix theirs = fixture<2>(fixture_name(dtype));
        double our_total = 0, their_total = 0;
        for (std::size_t row = 0; row < weights.shape(0); ++row) {
            INFO("row ", row);
            const std::vector<Real> original = row_of(weights, row);
            const double our_error = squared_error(restored(dtype, original), original);
            const double their_error = squared_error(row_of(theirs, row), original);
            CHECK(our_error <= 1.15 * their_error);
            our_total += our_error, their_total += their_error;
        }
        CHECK(our_total <= 1.01 * their_total);
    }
}

TEST_CASE("quantize_q8_0: the largest magnitude becomes 127, the others round to nearest") {
    Generator generator(1);
    for (const Real spread : {Real(1e-3), Real(1), Real(1000)}) {
        std::vector<Real> weights = random_row(32, generator, spread);
        const BlockQ8_0 block = quantize_q8_0(std::span(weights).first<32>());
        const Real scale = absmax_of(weights) / 127;
        CHECK(static_cast<Real>(block.scale) == doctest::Approx(scale).epsilon(1e-3));
        int largest = 0;
        for (std::size_t i = 0; i < 32; ++i) {
            CHECK(std::abs(block.values[i] - weights[i] / scale) <= 0.5001);
            largest = std::max(largest, std::abs(int{block.values[i]}));
        }
        CHECK(largest == 127);
    }
}

TEST_CASE("quantize_q4_0 and quantize_q5_0: the largest magnitude becomes -8 or -16") {
    for (const Real sign : {Real(1), Real(-1)}) {
        std::array<Real, 32> weights{};
        for (std::size_t i = 0; i < 32; ++i) weights[i] = sign * Real(int(i) - 20) / 16;
        // The largest magnitude is that of weight 0, so the scale of q4_0 is weight 0 / -8.
        const BlockQ4_0 four_bits = quantize_q4_0(weights);
        const Real scale = weights[0] / -8;
        CHECK(static_cast<Real>(four_bits.scale) == scale);
        CHECK((four_bits.values[0] & 15) == 0);  // -8 and an offset of 8
        for (std::size_t i = 0; i < 16; ++i) {   // low halves, then high halves
            const int low = std::min(7, int(std::floor(weights[i] / scale + Real(0.5))));
            const int high = std::min(7, int(std::floor(weights[16 + i] / scale + Real(0.5))));
            CHECK((four_bits.values[i] & 15) - 8 == low);
            CHECK((four_bits.values[i] >> 4) - 8 == high);
        }
        const BlockQ5_0 five_bits = quantize_q5_0(weights);
        CHECK(static_cast<Real>(five_bits.scale) == weights[0] / -16);
        CHECK((five_bits.values[0] & 15) == 0);
        CHECK((five_bits.high_bits[0] & 1) == 0);
    }
}

TEST_CASE("quantize_row: each error is at most about half a step of its block") {
    Generator generator(2);
    const std::vector<Real> weights = random_row(512, generator, Real(0.1));
    // Half a scale, and the rounding of the scale to float16; q4_0 and q5_0 also clip weights
    // of the other sign by at most one scale.
    const std::map<DType, double> bounds = {
        {DType::q8_0, 0.57 / 127}, {DType::q4_0, 1.01 / 8}, {DType::q5_0, 1.01 / 16}};
    for (const auto& [dtype, bound] : bounds) {
        const std::string name(to_text(dtype));
        const double largest = bound;
        for (std::size_t begin = 0; begin < 512; begin += 32) {
            INFO(name, ", block ", begin / 32);
            const std::span<const Real> block = std::span(weights).subspan(begin, 32);
            const std::vector<Real> back = restored(dtype, block);
            for (std::size_t i = 0; i < 32; ++i)
                CHECK(std::abs(back[i] - block[i]) <= largest * absmax_of(block));
        }
    }
}

TEST_CASE("quantize_row: a min makes q4_k exact for weights far from 0, where q4_0 is not") {
    std::vector<Real> weights(256);
    for (std::size_t i = 0; i < 256; ++i)
        weights[i] = -1 + Real(i * 7 % 16) / 64;  // 16 levels from -1 on
    CHECK(std::sqrt(squared_error(restored(DType::q4_k, weights), weights) / 256) < 0.002);
    CHECK(std::sqrt(squared_error(restored(DType::q4_0, weights), weights) / 256) > 0.02);
}

TEST_CASE("quantize_row: blocks of zeros, of one value, and of tiny weights stay finite") {
    for (const DType dtype : block_dtypes) {
        INFO(to_text(dtype));
        const std::vector<Real> zeros(256, 0);
        CHECK(restored(dtype, zeros) == zeros);
        for (const Real value : {Real(0.25), Real(-3), Real(1000), Real(-1e-3)}) {
            const std::vector<Real> back = restored(dtype, std::vector<Real>(256, value));
            for (const Real weight : back)
                CHECK(weight == doctest::Approx(value).epsilon(0.01));
        }
        for (const int exponent : {-149, -130, -120, -30, -20}) {
            std::vector<Real> tiny(256, std::ldexp(Real(1), exponent));
            tiny[3] = 0;
            for (const Real weight : restored(dtype, tiny)) {
                CHECK(std::isfinite(weight));
                CHECK(std::abs(weight) <= std::ldexp(Real(1.1), exponent) + Real(1e-6));
            }
        }
    }
}

TEST_CASE("quantize_row: a scale that float16 rounds to 0 gives integers of 0") {
    for (const int exponent : {-149, -130, -30}) {
        INFO("2 to the power of ", exponent);
        std::array<Real, 32> weights;
        weights.fill(std::ldexp(Real(1), exponent));
        weights[3] = 0;
        const BlockQ8_0 eight_bits = quantize_q8_0(weights);
        for (const std::int8_t value : eight_bits.values) CHECK(int{value} == 0);
        const BlockQ4_0 four_bits = quantize_q4_0(weights);
        for (const std::uint8_t value : four_bits.values) CHECK(int{value} == 0x88);
        const BlockQ5_0 five_bits = quantize_q5_0(weights);
        for (const std::uint8_t value : five_bits.values) CHECK(int{value} == 0);
        for (const std::uint8_t bits : five_bits.high_bits) CHECK(int{bits} == 0xff);
    }
}

TEST_CASE("quantize_q6_k restores products of a scale and integers in every bit") {
    // The scales of the groups are 128, -120, 112, ... times 2^-10. Each group has an integer
    // of -32, which determines its scale, and one of 31.
    std::vector<Real> weights(256);
    for (int i = 0; i < 256; ++i) {
        const int group = i / 16, place = i % 16;
        const int integer = place == 5 ? -32 : place == 9 ? 31 : i * 21 % 64 - 32;
        const int scale = (group % 2 == 0 ? 1 : -1) * (128 - 8 * group);
        weights[static_cast<std::size_t>(i)] =
            std::ldexp(static_cast<Real>(scale * integer), -10);
    }
    CHECK(restored(DType::q6_k, weights) == weights);
}

TEST_CASE(
    "quantize_row: weights at the limit of a type stay finite, larger ones are rejected") {
    const Real half = 65504;  // the largest float16
    const std::map<DType, Real> limits = {{DType::bfloat16, to_float(Bfloat16{0x7f7f})},
                                          {DType::float16, half},
                                          {DType::q8_0, 127 * half},
                                          {DType::q4_0, 8 * half},
                                          {DType::q5_0, 16 * half},
                                          {DType::q4_k, 32 * half},
                                          {DType::q6_k, 30 * 128 * half}};
    for (const auto& [dtype, limit] : limits) {
        const std::string name(to_text(dtype));
        INFO(name);
        for (const Real sign : {Real(1), Real(-1)}) {
            std::vector<Real> weights(256, sign * limit);
            weights[200] = -sign * limit;
            const std::vector<Real> back = restored(dtype, weights);
            for (std::size_t i = 0; i < 256; ++i)
                CHECK(back[i] == doctest::Approx(weights[i]).epsilon(0.13));

            weights[77] = sign * limit * Real(1.001);
            std::vector<std::byte> row(bytes_per_row(dtype, 256));
            const std::string rejected =
                "quantize: a row of 256 weights has one that is too large for " + name;
            if (std::isfinite(weights[77]))
                CHECK_THROWS_WITH_AS(quantize_row(dtype, weights, row), rejected.c_str(),
                                     ValueError);
        }
    }
}

TEST_CASE("quantize_row: the scales that a K-quant fits stay finite at its limit") {
    Generator generator(8);
    const std::map<DType, Real> limits = {{DType::q4_k, 32 * Real(65504)},
                                          {DType::q6_k, 30 * 128 * Real(65504)}};
    for (const auto& [dtype, limit] : limits)
        for (int repetition = 0; repetition < 200; ++repetition) {
            // Weights of few sizes, so that fitting moves the levels far.
            std::vector<Real> weights(256);
            const auto num_sizes = static_cast<std::uint32_t>(2 + repetition % 9);
            for (Real& weight : weights) {
                const auto size = static_cast<Real>(generator.next_32_bits() % num_sizes);
                weight = limit * (2 * size / static_cast<Real>(num_sizes - 1) - 1);
            }
            for (const Real weight : restored(dtype, weights)) CHECK(std::isfinite(weight));
        }
}

TEST_CASE("quantize_q6_k: a block of equal weights of few bits is exact") {
    for (const Real value : {Real(0.25), Real(-3), Real(1000), Real(0.7001953125)})
        CHECK(restored(DType::q6_k, std::vector<Real>(256, value)) ==
              std::vector<Real>(256, value));
}

TEST_CASE("quantize_row: float32 keeps all bits, float16 and bfloat16 round to nearest even") {
    Generator generator(3);
    std::vector<Real> weights = random_row(77, generator);
    weights[0] = Real(1.00390625);                    // halfway between two bfloat16
    weights[1] = Real(1) + std::ldexp(Real(1), -11);  // halfway between two float16
    CHECK(restored(DType::float32, weights) == weights);
    const std::vector<Real> as_bfloat16 = restored(DType::bfloat16, weights);
    const std::vector<Real> as_float16 = restored(DType::float16, weights);
    CHECK(as_bfloat16[0] == 1);
    CHECK(as_float16[1] == 1);
    for (std::size_t i = 0; i < 77; ++i) {
        CHECK(as_bfloat16[i] == to_float(to_bfloat16(weights[i])));
        CHECK(std::abs(as_float16[i] - weights[i]) <= std::abs(weights[i]) / 2048);
    }
}

TEST_CASE("quantize_row names what it rejects") {
    for (const DType dtype : all_dtypes) {
        INFO(to_text(dtype));
        std::vector<Real> weights(256, 1);
        std::vector<std::byte> row(bytes_per_row(dtype, 256));
        for (const Real bad : {infinity, -infinity, std::numeric_limits<Real>::quiet_NaN()}) {
            weights[200] = bad;
            CHECK_THROWS_WITH_AS(quantize_row(dtype, weights, row),
                                 "quantize: a row of 256 weights holds inf or NaN", ValueError);
        }
        weights[200] = 1;
        CHECK_THROWS_AS(quantize_row(dtype, weights, std::span(row).first(row.size() - 1)),
                        ValueError);
    }
    std::vector<std::byte> row(100);
    CHECK_THROWS_WITH_AS(quantize_row(DType::q8_0, std::vector<Real>(33, 1), row),
                         "q8_0: a row of 33 weights does not consist of blocks of 32",
                         ValueError);
}

TEST_CASE("stored_dtype: llama.cpp's fallbacks where blocks do not divide a row") {
    CHECK(stored_dtype(DType::q4_k, 512) == DType::q4_k);
    CHECK(stored_dtype(DType::q4_k, 192) == DType::q5_0);
    CHECK(stored_dtype(DType::q6_k, 384) == DType::q8_0);
    CHECK(stored_dtype(DType::q4_k, 48) == DType::float16);
    for (const DType dtype : block_dtypes) CHECK(stored_dtype(dtype, 33) == DType::float16);
    for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q5_0})
        CHECK(stored_dtype(dtype, 192) == dtype);
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16})
        CHECK(stored_dtype(dtype, 33) == dtype);
}
