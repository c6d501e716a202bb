#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/15_fast/exercise.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

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

TEST_CASE("15.4 find the bug: every weight is slightly too small") {
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

TEST_CASE("15.5 write merge") {
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

TEST_CASE("15.6 predict what the roofline allows") {
    const Vector prediction = predicted_gflops();
    const auto roofline = [](Real tokens, Real bytes) {
        return std::min(Real(100), 2 * tokens / bytes * 20);
    };
    INFO("GFLOP/s with weights of one byte, two and four");
    CHECK_CLOSE(prediction, (Vector{roofline(1, 1), roofline(4, 2), roofline(64, 4)}), 0);
}

TEST_CASE("15.7 predict an online softmax") {
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

TEST_CASE("15.8 predict the tiles of causal attention") {
    const Vector prediction = predicted_tiles();
    const Matrix mask = causal_mask(256, 256);
    Vector tiles{0, 0};
    for (const auto [i, j] : every_index(4, 4))  // is the lower left corner of the tile masked?
        tiles(mask(64 * i + 63, 64 * j) == 0 ? 0 : 1) += 1;
    INFO("tiles that are computed, and tiles that are skipped");
    CHECK_CLOSE(prediction, tiles, 0);
}
