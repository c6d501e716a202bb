#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/15_fast/exercise.hpp"
#include "common/numbers/random.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

// Attention to the keys begin to end - 1, computed in double.
PartialAttention partial_attention(const Vector& scores, const Matrix& values,
                                   std::size_t begin, std::size_t end) {
    double maximum = -infinity, sum = 0;
    std::vector<double> context(values.shape(1));
    for (std::size_t s = begin; s < end; ++s) maximum = std::max(maximum, double{scores(s)});
    for (std::size_t s = begin; s < end; ++s) {
        const double weight = std::exp(scores(s) - maximum);
        sum += weight;
        for (std::size_t d = 0; d < context.size(); ++d) context[d] += weight * values(s, d);
    }
    PartialAttention partial{static_cast<Real>(maximum), static_cast<Real>(sum), {}};
    partial.context = xt::zeros<Real>({context.size()});
    std::copy(context.begin(), context.end(), partial.context.begin());
    return partial;
}

void check_partial(const PartialAttention& actual, const PartialAttention& expected) {
    REQUIRE(actual.maximum == expected.maximum);
    REQUIRE(actual.sum == doctest::Approx(expected.sum).epsilon(1e-5));
    REQUIRE_CLOSE(actual.context, expected.context, 1e-5);
}

// The nearest number with eight significant bits, by arithmetic; ties to even.
double with_8_bits(double number) {
    if (number == 0) return number;
    const double last_bit = std::ldexp(1.0, std::ilogb(number) - 7);
    return std::nearbyint(number / last_bit) * last_bit;
}

// Integers from -most to most.
std::vector<std::int8_t> random_integers(std::size_t count, Id most, Generator& generator) {
    std::vector<std::int8_t> numbers;
    for (const Id number : randint(-most, most + 1, {count}, generator))
        numbers.push_back(static_cast<std::int8_t>(number));
    return numbers;
}

// The first values. Those after them must not be read.
Int8Row first_of(const QuantizedRow& row, std::size_t count) {
    return {std::span(row.values).first(count),
            std::span(row.scales).first((count + group_size - 1) / group_size)};
}

double product_of(const Int8Row& a, const Int8Row& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i)
        sum += double{a.scales[i / 64]} * a.values[i] * b.scales[i / 64] * b.values[i];
    return sum;
}

// The largest magnitude in the group of weight i.
double absmax_of_group(const Vector& row, std::size_t i, std::size_t group) {
    double largest = 0;
    for (std::size_t j = i / group * group; j < row.size() && j / group == i / group; ++j)
        largest = std::max(largest, std::abs(double{row(j)}));
    return largest;
}

}  // namespace

TEST_CASE("15.1 find the bug: correct for one block, wrong for two") {
    const Real log_3 = std::log(Real(3));
    const Vector rising{0, log_3}, falling{log_3, 0};
    const Matrix two_values{{4}, {8}};
    {
        INFO("two keys in one block, with weights of 1/4 and 3/4");
        REQUIRE_CLOSE(attention_in_blocks(rising, two_values, 2), Vector{7}, 1e-5);
    }
    {
        INFO("two keys in two blocks, with weights of 3/4 and 1/4");
        REQUIRE_CLOSE(attention_in_blocks(falling, two_values, 1), Vector{5}, 1e-5);
    }
    {
        INFO("two keys in two blocks, with weights of 1/4 and 3/4");
        REQUIRE_CLOSE(attention_in_blocks(rising, two_values, 1), Vector{7}, 1e-5);
    }
    Generator generator(1);
    for (const auto& [middle, spread] : {std::pair{0, 3}, {200, 3}, {-200, 3}, {0, 200}}) {
        const Vector scores = randn({23}, generator) * Real(spread) + Real(middle);
        const Matrix values = randn({23, 5}, generator);
        const PartialAttention all = partial_attention(scores, values, 0, 23);
        for (const std::size_t block_size : {23, 64, 12, 8, 5, 2, 1}) {
            INFO("23 keys in blocks of ", block_size, ", with scores between ",
                 xt::amin(scores)(), " and ", xt::amax(scores)());
            REQUIRE_CLOSE(attention_in_blocks(scores, values, block_size),
                          all.context / all.sum, 1e-5);
        }
    }
}

TEST_CASE("15.2 find the bug: the end of a row is ignored") {
    Generator generator(2);
    for (const std::size_t size : {64, 128, 66, 4, 3, 5, 1, 2, 6, 7, 8, 9, 12, 63, 65, 71, 0}) {
        // The rows are followed by values that must not be read.
        std::vector<Real> a(size + 16, 1000), b = a;
        double expected = 0;
        for (std::size_t i = 0; i < size; ++i) {
            a[i] = generator.next_uniform() + 1;
            b[i] = generator.next_uniform() - 2;
            expected += double{a[i]} * b[i];
        }
        INFO("two rows of ", size, " elements");
        REQUIRE(dot_with_four_sums(std::span(a).first(size), std::span(b).first(size)) ==
                doctest::Approx(expected).epsilon(1e-5));
    }
}

TEST_CASE("15.3 find the bug: a query attends to the next token") {
    {
        INFO("of the keys 0 to 63, the first query attends only to itself");
        REQUIRE(num_unmasked_keys(0, 0, 64) == 1);
    }
    for (std::size_t position = 0; position < 20; ++position)
        for (std::size_t begin = 0; begin < 24; ++begin)
            for (std::size_t size = 1; size <= 8; ++size) {
                std::size_t expected = 0;
                for (std::size_t key = begin; key < begin + size; ++key)
                    if (key <= position) ++expected;
                INFO("a query at ", position, " and the keys ", begin, " to ",
                     begin + size - 1);
                REQUIRE(num_unmasked_keys(position, begin, size) == expected);
            }
}

TEST_CASE("15.4 find the bug: one large weight sets the others to zero") {
    Generator generator(4);
    Vector row = randn({150}, generator) * Real(0.05);
    for (const Real large : {40.0f, -2.0f, 0.01f}) {
        row(70) = large;
        const QuantizedRow quantized = quantize_int8(row);
        REQUIRE(quantized.values.size() == 150);
        REQUIRE(quantized.scales.size() == 3);
        for (std::size_t i = 0; i < 150; ++i) {
            const double back = double{quantized.scales[i / 64]} * quantized.values[i];
            INFO("of 150 weights, in groups of 64, weight 70 is ", large);
            INFO("weight ", i, " is ", row(i), " and becomes ", back);
            const double error = std::abs(back - row(i));
            const double half_a_scale = absmax_of_group(row, i, 64) / 127 / 2;
            REQUIRE(error <= half_a_scale * 1.0001);
        }
    }
    INFO("a group of zeros");
    xt::view(row, xt::range(64, 128)) = Real(0);
    const QuantizedRow quantized = quantize_int8(row);
    for (std::size_t i = 64; i < 128; ++i)
        REQUIRE(quantized.scales.at(1) * quantized.values.at(i) == 0);
}

TEST_CASE("15.5 find the bug: every weight is slightly too small") {
    for (const float exact : {1.0f, -0.15625f, 0.0f, -402653184.0f, infinity}) {
        INFO(exact, " fits into 16 bits");
        REQUIRE(to_float(round_to_bfloat16(exact)) == exact);
    }
    Generator generator(5);
    const Vector weights = randn({2000}, generator);
    double sum = 0, rounded_sum = 0;
    for (const Real weight : weights) {
        sum += std::abs(weight);
        rounded_sum += std::abs(to_float(round_to_bfloat16(weight)));
    }
    {
        INFO(
            "2000 weights: the sum of their magnitudes in 16 bits, divided by the sum in 32 "
            "bits");
        REQUIRE(rounded_sum / sum == doctest::Approx(1).epsilon(1e-4));
    }
    const float step = 1.0f / 128;  // from 1 to the next bfloat16
    for (const float sign : {1.0f, -1.0f}) {
        for (const float steps : {0.25f, 0.499f, 0.501f, 0.75f}) {
            const float number = sign * (1 + steps * step);
            INFO(number, " lies between the neighbors ", sign, " and ", sign * (1 + step));
            REQUIRE(to_float(round_to_bfloat16(number)) ==
                    sign * (steps < 0.5f ? 1 : 1 + step));
        }
        INFO("from the middle between two neighbors to the even one, 1 or 1.015625");
        REQUIRE(to_float(round_to_bfloat16(sign * (1 + 0.5f * step))) == sign);
        REQUIRE(to_float(round_to_bfloat16(sign * (1 + 1.5f * step))) == sign * (1 + 2 * step));
        REQUIRE(to_float(round_to_bfloat16(sign * (1 + 2.5f * step))) == sign * (1 + 2 * step));
    }
    {
        INFO("1.999 is nearer to 2 than to 1.9921875");
        REQUIRE(to_float(round_to_bfloat16(1.999f)) == 2);
    }
    for (const Real factor : {0.02f, 1.0f, -7.0e20f, 3.0e-20f})
        for (const Real number : weights) {
            INFO("a weight of ", factor * number);
            REQUIRE(to_float(round_to_bfloat16(factor * number)) ==
                    with_8_bits(factor * number));
        }
}

TEST_CASE("15.6 write merge") {
    const Real log_3 = std::log(Real(3));
    {
        INFO("one key with a score of 0, and one of ln 3, with three times the weight");
        const PartialAttention low{0, 1, Vector{4, 0}}, high{log_3, 1, Vector{8, 1}};
        const PartialAttention both{log_3, Real(4) / 3, Vector{Real(28) / 3, 1}};
        check_partial(merge(low, high), both);
        check_partial(merge(high, low), both);
    }
    Generator generator(6);
    const PartialAttention nothing{-infinity, 0, Vector{0, 0, 0}};
    for (const auto& [middle, spread] : {std::pair{0, 4}, {200, 4}, {-200, 4}, {0, 200}}) {
        const Vector random = randn({11}, generator) * Real(spread) + Real(middle);
        const Matrix rows = randn({11, 3}, generator);
        const auto part = [&](std::size_t begin, std::size_t end) {
            return partial_attention(random, rows, begin, end);
        };
        INFO("11 keys with scores between ", xt::amin(random)(), " and ", xt::amax(random)());
        for (std::size_t cut = 0; cut <= 11; ++cut) {
            INFO("of them ", cut, " are in one part, ", 11 - cut, " in the other");
            check_partial(merge(part(0, cut), part(cut, 11)), part(0, 11));
            check_partial(merge(part(cut, 11), part(0, cut)), part(0, 11));
        }
        INFO("in four parts, one of them without keys, in any order");
        check_partial(merge(merge(part(3, 4), part(4, 11)), merge(nothing, part(0, 3))),
                      part(0, 11));
    }
    INFO("two parts without keys give one without keys");
    check_partial(merge(nothing, nothing), nothing);
}

TEST_CASE("15.7 write int8_dot") {
    {
        INFO("(1, -2, 3) / 2 times (4, 5, -6) / 4 is -24 / 8");
        const QuantizedRow a{{1, -2, 3}, {0.5f}}, b{{4, 5, -6}, {0.25f}};
        REQUIRE(int8_dot(first_of(a, 3), first_of(b, 3)) == doctest::Approx(-3));
    }
    for (const std::size_t size : {1, 2, 3, 4, 9, 32, 64}) {
        INFO(size, " products of 127 and 127, or -127, with scales of 1");
        const QuantizedRow high{std::vector<std::int8_t>(size, 127), {1}};
        const QuantizedRow low{std::vector<std::int8_t>(size, -127), {1}};
        const double product = 16129.0 * static_cast<double>(size);
        REQUIRE(int8_dot(first_of(high, size), first_of(high, size)) == product);
        REQUIRE(int8_dot(first_of(high, size), first_of(low, size)) == -product);
    }
    Generator generator(7);
    const QuantizedRow a{random_integers(400, 127, generator),
                         {0.5f, 0.01f, 3, 0, 0.2f, 1, 900}};
    const QuantizedRow b{random_integers(400, 127, generator),
                         {0.1f, 7, 0.02f, 5, 0.3f, 1, 900}};
    for (const std::size_t size : {64, 63, 65, 100, 128, 150, 192, 200, 256, 300, 383, 0}) {
        INFO(size, " values, in groups of 64 with different scales");
        const double expected = product_of(first_of(a, size), first_of(b, size));
        REQUIRE(int8_dot(first_of(a, size), first_of(b, size)) ==
                doctest::Approx(expected).epsilon(1e-5));
    }
    INFO("a sum of integers is exact: 6 * 2 - 4 * 3, and 31 more such pairs");
    for (int row = 0; row < 20; ++row) {
        QuantizedRow left{{}, {0.1f}}, right{{}, {0.3f}};
        const auto factors = random_integers(96, 11, generator);
        for (std::size_t i = 0; i < 96; i += 3) {  // x·y times z, minus x·z times y
            const auto product = [&](std::size_t j, int sign) {
                return static_cast<std::int8_t>(sign * factors[i] * factors[i + j]);
            };
            left.values.insert(left.values.end(), {product(1, 1), product(2, -1)});
            right.values.insert(right.values.end(), {factors[i + 2], factors[i + 1]});
        }
        REQUIRE(int8_dot(first_of(left, 64), first_of(right, 64)) == 0);
    }
}

TEST_CASE("15.8 write quantize_int4 and dequantize_int4") {
    {
        INFO(
            "3.5, -3.5, 0 and 1 have a scale of 0.5: 7, -7, 0 and 2, each stored with 8 added");
        const Int4Row packed = quantize_int4({3.5f, -3.5f, 0, 1});
        REQUIRE(packed.size == 4);
        REQUIRE(packed.bytes.size() == 2);
        REQUIRE(packed.scales.size() == 1);
        REQUIRE(packed.scales[0] == doctest::Approx(0.5));
        REQUIRE(int{packed.bytes[0]} == 15 + 1 * 16);
        REQUIRE(int{packed.bytes[1]} == 8 + 10 * 16);
    }
    {
        INFO("the bytes 31 and 168 with a scale of 0.5, for 4 weights and for 3");
        REQUIRE_CLOSE(dequantize_int4({4, {31, 168}, {0.5f}}), (Vector{3.5f, -3.5f, 0, 1}), 0);
        REQUIRE_CLOSE(dequantize_int4({3, {31, 168}, {0.5f}}), (Vector{3.5f, -3.5f, 0}), 0);
    }
    Generator generator(8);
    for (const std::size_t size : {32, 64, 1, 2, 31, 33, 47, 63, 65, 96, 100, 0}) {
        // 2^0, 2^-3, 2^-6, ... are the scales of integers, one of which is 7 or -7.
        Vector exact = xt::zeros<Real>({size}), row = randn({size}, generator);
        const auto numbers = random_integers(size, 7, generator);
        for (std::size_t i = 0; i < size; ++i) {
            const int number = i % 32 != 0 ? numbers[i] : i % 64 == 0 ? 7 : -7;
            exact(i) = std::ldexp(static_cast<Real>(number), -3 * static_cast<int>(i / 32));
            row(i) *= i / 32 == 1 ? 50 : 1;
        }
        const Int4Row packed = quantize_int4(row);
        {
            INFO(size, " weights: two per byte, and a scale for each 32");
            REQUIRE(packed.size == size);
            REQUIRE(packed.bytes.size() == (size + 1) / 2);
            REQUIRE(packed.scales.size() == (size + 31) / 32);
        }
        {
            INFO(size, " weights that are integers times their scale are exact");
            REQUIRE_CLOSE(dequantize_int4(quantize_int4(exact)), exact, 1e-6);
        }
        const Vector back = dequantize_int4(packed);
        REQUIRE(back.size() == size);
        for (std::size_t i = 0; i < size; ++i) {
            INFO("of ", size, " weights, weight ", i, " is ", row(i), " and becomes ", back(i));
            const double error = std::abs(double{back(i)} - row(i));
            const double half_a_scale = absmax_of_group(row, i, 32) / 7 / 2;
            REQUIRE(error <= half_a_scale * 1.0001);
        }
    }
    INFO("a group of zeros between two others");
    Vector row = xt::ones<Real>({70});
    xt::view(row, xt::range(32, 64)) = Real(0);
    REQUIRE_CLOSE(dequantize_int4(quantize_int4(row)), row, 1e-5);
}

TEST_CASE("15.9 predict what the roofline allows") {
    const Vector prediction = predicted_gflops();
    const auto roofline = [](Real tokens, Real bytes) {
        return std::min(Real(100), 2 * tokens / bytes * 20);
    };
    INFO("GFLOP/s with int8, bfloat16 and float32 weights");
    CHECK_CLOSE(prediction, (Vector{roofline(1, 1), roofline(4, 2), roofline(64, 4)}), 0);
}

TEST_CASE("15.10 predict an online softmax") {
    const Vector prediction = predicted_online_softmax();
    Vector first{0, std::log(Real(3))}, second{std::log(Real(6))}, states{0, 0, 0, 0};
    OnlineSoftmax softmax;
    softmax.update(first, 1);
    states(0) = std::exp(softmax.maximum), states(1) = softmax.sum;
    softmax.update(second, 1);
    states(2) = std::exp(softmax.maximum), states(3) = softmax.sum;
    INFO("exp(maximum) and sum after each of the two blocks");
    CHECK_CLOSE(prediction, states, 1e-3);
}

TEST_CASE("15.11 predict the tiles of causal attention") {
    const Vector prediction = predicted_tiles();
    const Matrix mask = causal_mask(256, 256);
    Vector tiles{0, 0};
    for (const auto [i, j] : every_index(4, 4))  // is the lower left corner of the tile masked?
        tiles(mask(64 * i + 63, 64 * j) == 0 ? 0 : 1) += 1;
    INFO("tiles that are computed, and tiles that are skipped");
    CHECK_CLOSE(prediction, tiles, 0);
}

TEST_CASE("15.12 predict int8 values") {
    const Vector prediction = predicted_int8();
    const QuantizedMatrix quantized =
        quantize(Matrix{{Real(2.54), -1, Real(0.3)}}, DType::int8);
    const Vector values{Real(quantized.int8_values[0]), Real(quantized.int8_values[1]),
                        Real(quantized.int8_values[2])};
    INFO("the stored integers");
    CHECK_CLOSE(prediction, values, 0);
}
