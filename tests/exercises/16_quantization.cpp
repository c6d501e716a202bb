#include "chapters/16_quantization/exercise.hpp"

#include <cmath>

#include "chapters/15_fast/matmul.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

std::span<const Real> elements_of(const Vector& row) { return {row.data(), row.size()}; }

// Some integers from -most to most.
std::vector<std::int8_t> random_integers(std::size_t count, Id most, Generator& generator) {
    std::vector<std::int8_t> numbers;
    for (const Id number : randint(-most, most + 1, {count}, generator))
        numbers.push_back(static_cast<std::int8_t>(number));
    return numbers;
}

BlockQ8_0 block_of(const std::vector<std::int8_t>& values, float scale) {
    BlockQ8_0 block{Half(scale), {}};
    std::copy(values.begin(), values.end(), block.values.begin());
    return block;
}
BlockQ8_0 equal_values(std::int8_t value, std::size_t count) {
    return block_of(std::vector<std::int8_t>(count, value), 1);
}

// The sum of squared errors of the outputs if a weight is replaced.
double output_error(const Matrix& replaced, const Matrix& weight, const Matrix& inputs) {
    const Matrix errors = matmul_blas(inputs, replaced - weight);
    double sum = 0;
    for (const Real error : errors) sum += double{error} * error;
    return sum;
}

// The error of exercise 16.5 for one alpha, with loops.
double awq_error(const Matrix& weight, const Matrix& inputs, double alpha) {
    std::vector<double> scales(weight.shape(1));
    for (const auto [n, j] : every_index(inputs.shape(0), scales.size()))
        scales[j] += std::abs(inputs(n, j));
    const double smallest = 1e-4 * *std::max_element(scales.begin(), scales.end());
    for (double& scale : scales) scale = std::pow(std::max(scale, smallest), alpha);
    const auto [low, high] = std::minmax_element(scales.begin(), scales.end());
    const double middle = std::sqrt(*low * *high);

    Matrix restored = weight;
    for (const auto [o, j] : every_index(weight.shape(0), scales.size()))
        restored(o, j) = static_cast<Real>(restored(o, j) * (scales[j] / middle));
    restored = round_to_q4_0(restored);
    for (const auto [o, j] : every_index(weight.shape(0), scales.size()))
        restored(o, j) = static_cast<Real>(restored(o, j) / (scales[j] / middle));
    return output_error(restored, weight, inputs);
}

// The smallest error of exercise 16.5.
double best_awq_error(const Matrix& weight, const Matrix& inputs) {
    double best = awq_error(weight, inputs, 0);
    for (int tenths = 1; tenths <= 10; ++tenths)
        best = std::min(best, awq_error(weight, inputs, tenths / 10.0));
    return best;
}

}  // namespace

TEST_CASE("16.1 find the bug: one large weight sets the others to zero") {
    Generator generator(4);
    Vector row = randn({96}, generator) * Real(0.05);
    for (const Real large : {40.0f, -2.0f, 0.01f}) {
        row(40) = large;
        const std::vector<BlockQ8_0> blocks = quantize_row_q8_0(elements_of(row));
        REQUIRE(blocks.size() == 3);
        for (std::size_t i = 0; i < 96; ++i) {
            const BlockQ8_0& block = blocks[i / 32];
            const double back = double{static_cast<Real>(block.scale)} * block.values[i % 32];
            INFO("of 96 weights, in blocks of 32, weight 40 is ", large);
            INFO("weight ", i, " is ", row(i), " and becomes ", back);
            double absmax = 0;
            for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
                absmax = std::max(absmax, std::abs(double{row(j)}));
            // Half a scale; and the scale itself is rounded to float16.
            REQUIRE(std::abs(back - row(i)) <= absmax * (0.5 / 127 + 1.0 / 2048) * 1.001);
        }
    }
    INFO("a block of zeros between two others");
    xt::view(row, xt::range(32, 64)) = Real(0);
    const std::vector<BlockQ8_0> blocks = quantize_row_q8_0(elements_of(row));
    for (std::size_t i = 0; i < 32; ++i)
        REQUIRE(static_cast<Real>(blocks[1].scale) * blocks[1].values[i] == 0);
}

TEST_CASE("16.2 find the bug: the right weights in the wrong places") {
    BlockQ4_0 block{Half(0.5f), {}};
    for (const int value : {0, 5, 8, 15}) {
        INFO("a scale of 0.5, and 32 times the integer ", value, " - 8");
        block.values.fill(static_cast<std::uint8_t>(value * 17));
        REQUIRE_CLOSE(dequantize_q4_0(block),
                      Vector(xt::ones<Real>({32}) * Real(value - 8) / Real(2)), 0);
    }
    {
        INFO("a scale of 0.5; the low halves are 0 to 15, the high halves 15 to 0");
        Vector expected = xt::zeros<Real>({32});
        for (std::size_t i = 0; i < 16; ++i) {
            block.values[i] = static_cast<std::uint8_t>(i + 16 * (15 - i));
            expected(i) = (Real(i) - 8) / 2;
            expected(16 + i) = (7 - Real(i)) / 2;
        }
        REQUIRE_CLOSE(dequantize_q4_0(block), expected, 0);
    }
    INFO("weights that are quantized to Q4_0 are close to the original ones");
    Generator generator(5);
    for (int times = 0; times < 20; ++times) {
        const Vector weights = randn({32}, generator);
        const BlockQ4_0 quantized = llm::quantize_q4_0(elements_of(weights).first<32>());
        const Real scale = std::abs(static_cast<Real>(quantized.scale));
        REQUIRE_CLOSE(dequantize_q4_0(quantized), weights, scale * Real(1.01));
    }
}

TEST_CASE("16.3 find the bug: correct for small integers only") {
    {
        INFO("the integers 1, -2 and 3, with a scale of 0.5, times 4, 5 and -6, with 0.25");
        REQUIRE(dot_q8_0(block_of({1, -2, 3}, 0.5f), block_of({4, 5, -6}, 0.25f)) == -3);
    }
    Generator generator(7);
    for (const std::size_t count : {1, 2, 3, 4, 5, 9, 16, 31, 32}) {
        INFO(count, " products of 127 and 127, or -127, with scales of 1");
        const BlockQ8_0 high = equal_values(127, count), low = equal_values(-127, count);
        const double sum = 16129.0 * static_cast<double>(count);
        REQUIRE(dot_q8_0(high, high) == sum);
        REQUIRE(dot_q8_0(low, low) == sum);
        REQUIRE(dot_q8_0(high, low) == -sum);
    }
    for (const Id most : {11, 127})
        for (int times = 0; times < 20; ++times) {
            INFO("32 random integers from -", most, " to ", most);
            const BlockQ8_0 a = block_of(random_integers(32, most, generator), 0.375f);
            const BlockQ8_0 b = block_of(random_integers(32, most, generator), 0.0078125f);
            double expected = 0;
            for (std::size_t i = 0; i < 32; ++i) expected += a.values[i] * b.values[i];
            REQUIRE(dot_q8_0(a, b) ==
                    doctest::Approx(0.375 * 0.0078125 * expected).epsilon(1e-6));
        }
}

TEST_CASE("16.4 write quantize_q4_1 and dequantize_q4_1") {
    Vector weights = xt::zeros<Real>({32});
    for (std::size_t i = 0; i < 16; ++i) {
        weights(i) = 10 + Real(i) / 2;
        weights(16 + i) = Real(17.5) - Real(i) / 2;
    }
    {
        INFO("10, 10.5, ..., 17.5 and back: a scale of 0.5, a min of 10");
        const BlockQ4_1 block = quantize_q4_1(weights);
        REQUIRE(block.scale == doctest::Approx(0.5));
        REQUIRE(block.min == doctest::Approx(10));
        for (std::size_t i = 0; i < 16; ++i) {
            INFO("byte ", i, ": weight ", i, " is ", i, ", weight ", 16 + i, " is ", 15 - i);
            REQUIRE(std::size_t{block.values[i]} == i + 16 * (15 - i));
        }
    }
    {
        INFO("the same block, dequantized");
        BlockQ4_1 block{0.5f, 10, {}};
        for (std::size_t i = 0; i < 16; ++i)
            block.values[i] = static_cast<std::uint8_t>(i + 16 * (15 - i));
        REQUIRE_CLOSE(dequantize_q4_1(block), weights, 0);
    }
    Generator generator(8);
    for (const auto& [middle, spread] :
         {std::pair<Real, Real>{0, 1}, {3, 0.5f}, {-40, 2}, {0.001f, 0.0002f}, {0, 500}}) {
        const Vector row = randn({32}, generator) * spread + middle;
        const Vector back = dequantize_q4_1(quantize_q4_1(row));
        REQUIRE(back.size() == 32);
        const double low = xt::amin(row)(), high = xt::amax(row)();
        for (std::size_t i = 0; i < 32; ++i) {
            INFO("weights from ", low, " to ", high);
            INFO("weight ", i, " is ", row(i), " and becomes ", back(i));
            const double rounding = 1e-6 * std::max(std::abs(low), std::abs(high));
            REQUIRE(std::abs(double{back(i)} - row(i)) <= (high - low) / 15 / 2 + rounding);
        }
        INFO("weights from ", low, " to ", high, ": a second time, they stay what they are");
        REQUIRE_CLOSE(dequantize_q4_1(quantize_q4_1(back)), back, 1e-5);
    }
    for (const Real weight : {0.0f, 2.5f, -7.0f}) {
        INFO("32 equal weights");
        const Vector equal = xt::ones<Real>({32}) * weight;
        REQUIRE_CLOSE(dequantize_q4_1(quantize_q4_1(equal)), equal, 1e-6);
    }
}

TEST_CASE("16.5 write awq") {
    Generator generator(9);
    const Matrix weight = randn({24, 64}, generator) * Real(0.1);
    const Matrix plain = round_to_q4_0(weight);
    const Matrix even = randn({48, 64}, generator);
    Matrix inputs = even;  // with three outlier features
    for (const std::size_t j : {3u, 21u, 50u}) xt::view(inputs, xt::all(), j) *= Real(20);
    {
        INFO("64 features, three of them 20 times as large: the error of the outputs");
        const Matrix restored = awq(weight, inputs);
        REQUIRE(restored.shape() == weight.shape());
        const double error = output_error(restored, weight, inputs);
        REQUIRE(error == doctest::Approx(best_awq_error(weight, inputs)).epsilon(0.005));
        INFO("divided by that of Q4_0 without scales");
        REQUIRE(error / output_error(plain, weight, inputs) <= 0.3);
    }
    {
        INFO("64 features of the same magnitude: the error of the outputs");
        const double error = output_error(awq(weight, even), weight, even);
        REQUIRE(error == doctest::Approx(best_awq_error(weight, even)).epsilon(0.005));
        REQUIRE(error <= output_error(plain, weight, even));
    }
    {
        INFO("inputs that are 2^40 times as large need the same weights");
        const Matrix restored = awq(weight, inputs * std::ldexp(Real(1), 40));
        REQUIRE(output_error(restored, weight, inputs) ==
                doctest::Approx(best_awq_error(weight, inputs)).epsilon(0.005));
    }
    INFO("a feature is 0 in all calibration inputs: the error of the outputs");
    xt::view(inputs, xt::all(), 10) = Real(0);
    REQUIRE(output_error(awq(weight, inputs), weight, inputs) ==
            doctest::Approx(best_awq_error(weight, inputs)).epsilon(0.005));
}

TEST_CASE("16.6 predict the integers of a Q8_0 block") {
    const Vector prediction = predicted_integers();
    std::array<Real, 32> weights{Real(2.54), -1, Real(0.3)};
    const BlockQ8_0 block = llm::quantize_q8_0(weights);
    INFO("the first three integers");
    CHECK_CLOSE(prediction,
                (Vector{Real(block.values[0]), Real(block.values[1]), Real(block.values[2])}),
                0);
}

TEST_CASE("16.7 predict the bits per weight") {
    const Vector prediction = predicted_bits_per_weight();
    const auto bits = [](DType dtype) {
        return Real(8 * bytes_per_block(dtype)) / Real(block_size(dtype));
    };
    INFO("bits per weight of Q8_0, Q4_0 and Q4_K");
    CHECK_CLOSE(prediction, (Vector{bits(DType::q8_0), bits(DType::q4_0), bits(DType::q4_k)}),
                0);
}

TEST_CASE("16.8 predict the size of a model") {
    const Vector prediction = predicted_gigabytes();
    const auto gigabytes = [](DType dtype) {
        return 8 * Real(bytes_per_block(dtype)) / Real(block_size(dtype));
    };
    INFO("GB of 8 billion weights in bfloat16, Q8_0 and Q4_0");
    CHECK_CLOSE(
        prediction,
        (Vector{gigabytes(DType::bfloat16), gigabytes(DType::q8_0), gigabytes(DType::q4_0)}),
        0);
}

TEST_CASE("16.9 write train_quantized") {
    Generator generator(16);
    const Matrix weight = randn({6, 64}, generator);
    // Features that depend on four numbers, apart from some noise: strongly correlated.
    const Matrix inputs =  // (N, in)
        matmul(randn({200, 4}, generator), randn({4, 64}, generator) * Real(0.5)) +
        randn({200, 64}, generator) * Real(0.1);
    const Matrix targets = matmul_transposed(inputs, weight);
    const auto loss = [&](const Matrix& rounded) {
        const Matrix error = matmul_transposed(inputs, rounded) - targets;
        return double(xt::sum<Real>(error * error)()) / double(error.size());
    };
    {
        INFO("after one step with a learning rate of 0.5");
        const Matrix after = train_quantized(weight, inputs, targets, Real(0.5), 1);
        REQUIRE(after.shape() == weight.shape());
        // The derivative of the loss with respect to one rounded weight, by differences.
        const std::vector<std::array<std::size_t, 2>> indices = {{0, 0}, {5, 63}, {2, 17}};
        for (const auto& index : indices) {
            const std::size_t i = index[0], j = index[1];
            Matrix above = round_to_3_bits(weight), below = above;
            above(i, j) += Real(0.01);
            below(i, j) -= Real(0.01);
            const double derivative = (loss(above) - loss(below)) / 0.02;
            INFO("weight ", i, ", ", j);
            REQUIRE(double(weight(i, j) - after(i, j)) ==
                    doctest::Approx(0.5 * derivative).epsilon(0.02));
        }
    }
    INFO("after 300 steps: the loss of the rounded weights, divided by that before training");
    const Matrix trained = train_quantized(weight, inputs, targets, Real(0.01), 300);
    REQUIRE(loss(round_to_3_bits(trained)) / loss(round_to_3_bits(weight)) < 0.5);
}
