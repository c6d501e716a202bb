#include <bit>
#include <cmath>

#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/half_precision.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "common/numbers/random.hpp"
#include "common/tensors/dtype.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

template <std::size_t N>
xt::xtensor<Real, N> pinned(const std::string& name) {
    return fixture<N>("07_rmsnorm_vs_layernorm/" + name);
}

LayerNorm pinned_layer_norm(Real eps) { return {pinned<1>("weight"), pinned<1>("bias"), eps}; }

RMSNorm pinned_rms_norm(Real eps) { return {pinned<1>("weight"), eps}; }

HalfMatrix halves_of(const Matrix& matrix) { return matrix; }

HalfMatrix ones_in_half(std::size_t rows, std::size_t columns, float value = 1) {
    return HalfMatrix(std::array{rows, columns}, Half(value));
}

HalfVector weights_of_one(std::size_t columns) {
    return HalfVector(std::array{columns}, Half(1));
}

}  // namespace

TEST_CASE(
    "layer_normalize and rms_normalize of a row with mean 4, standard deviation 3, RMS 5") {
    const Matrix x{{-1, 5, 5, 7}};
    CHECK_CLOSE(layer_normalize(x, 0), (Matrix{{-5, 1, 1, 3}}) / Real(3), 1e-6);
    CHECK_CLOSE(rms_normalize(x, 0), x / Real(5), 1e-6);
}

// A single float32 sum of a long row loses the small addends beside a large partial sum.
TEST_CASE("norms of 4096 features with outliers equal those in double precision") {
    Generator generator(5);
    Matrix x = randn({3, 4096}, generator) + Real(3);
    for (std::size_t row = 0; row < 3; ++row)
        for (std::size_t c = row; c < 2000; c += 400) x(row, c) *= 300;
    const xt::xtensor<double, 2> in_double = x;
    xt::xtensor<double, 2> layer_normalized = in_double, partly_normalized = in_double;
    for (std::size_t row = 0; row < 3; ++row) {
        const auto values = xt::view(in_double, row);
        const double mean = xt::mean<double>(values)();
        const double variance = xt::mean<double>(xt::square(values - mean))();
        xt::view(layer_normalized, row) = (values - mean) / std::sqrt(variance);
        const double square =
            xt::mean<double>(xt::square(xt::view(values, xt::range(0, 3072))))();
        xt::view(partly_normalized, row) = values / std::sqrt(square);
    }
    CHECK_CLOSE(layer_normalize(x, 0), Matrix(layer_normalized), 3e-7);
    CHECK_CLOSE(partial_rms_normalize(x, 0.75, 0), Matrix(partly_normalized), 3e-7);
}

TEST_CASE("LayerNorm equals PyTorch's, with eps inside the square root") {
    const Tensor3 x = pinned<3>("hidden_states");
    CHECK_CLOSE(pinned_layer_norm(Real(1e-5))(x), pinned<3>("layer_norm"), 1e-5);
    CHECK_CLOSE(pinned_layer_norm(Real(0.5))(x), pinned<3>("layer_norm_large_eps"), 1e-5);
    LayerNorm norm = pinned_layer_norm(Real(1e-5));
    norm.bias.reset();
    CHECK_CLOSE(norm(x), pinned<3>("layer_norm_no_bias"), 1e-5);
}

TEST_CASE("RMSNorm equals PyTorch's, with eps inside the square root") {
    const Tensor3 x = pinned<3>("hidden_states");
    CHECK_CLOSE(pinned_rms_norm(Real(1e-5))(x), pinned<3>("rms_norm"), 1e-5);
    CHECK_CLOSE(pinned_rms_norm(Real(0.5))(x), pinned<3>("rms_norm_large_eps"), 1e-5);
    RMSNorm norm = pinned_rms_norm(Real(0.5));
    norm.bias = pinned<1>("bias");
    CHECK_CLOSE(norm(x), pinned<3>("rms_norm_bias_large_eps"), 1e-5);
}

TEST_CASE("the program's norms of the sample input equal PyTorch's") {
    Generator generator(77);
    const Tensor3 x = randn({2, 10, 128}, generator);
    CHECK_CLOSE(make_layer_norm(128, Real(1e-5))(x), pinned<3>("demo_layer_norm"), 1e-5);
    CHECK_CLOSE(make_rms_norm(128, Real(1e-5))(x), pinned<3>("demo_rms_norm"), 1e-5);
}

TEST_CASE("LayerNorm is invariant to shift and scale, RMSNorm to scale only") {
    Generator generator(1);
    const Matrix x = randn({3, 50}, generator);
    CHECK_CLOSE(layer_normalize(x * Real(4) + Real(10), 0), layer_normalize(x, 0), 1e-5);
    CHECK_CLOSE(layer_normalize(x + Real(1000), 0), layer_normalize(x, 0), 1e-3);
    CHECK_CLOSE(rms_normalize(x * Real(4), 0), rms_normalize(x, 0), 1e-6);
    CHECK_FALSE(difference(rms_normalize(x + Real(10), 0), rms_normalize(x, 0), 0.5).empty());
    // Both change the sign with their input.
    CHECK_CLOSE(layer_normalize(x * Real(-1), 0), layer_normalize(x, 0) * Real(-1), 1e-6);
}

TEST_CASE("LayerNorm equals RMSNorm of the centered input") {
    const Matrix x{{-1, 5, 5, 7}, {2, 0, 0, -6}}, centered{{-5, 1, 1, 3}, {3, 1, 1, -5}};
    CHECK_CLOSE(layer_normalize(x, Real(0.5)), rms_normalize(centered, Real(0.5)), 1e-6);
}

TEST_CASE("a norm treats each token separately") {
    Generator generator(2);
    Tensor3 x = randn({2, 5, 8}, generator);
    const Tensor3 layer_before = make_layer_norm(8, Real(1e-5))(x);
    const Tensor3 rms_before = make_rms_norm(8, Real(1e-5))(x);
    xt::view(x, 1, 4) = Real(100);  // the last token of the last sequence
    const Tensor3 layer_after = make_layer_norm(8, Real(1e-5))(x);
    const Tensor3 rms_after = make_rms_norm(8, Real(1e-5))(x);
    for (const auto [b, t, c] : every_index(2, 5, 8)) {
        if (b == 1 && t == 4) continue;
        CHECK(layer_after(b, t, c) == layer_before(b, t, c));
        CHECK(rms_after(b, t, c) == rms_before(b, t, c));
    }
}

TEST_CASE("a row of zeros gives a row of zeros") {
    const Matrix zeros = xt::zeros<Real>({2, 3});
    CHECK_CLOSE(make_rms_norm(3, Real(1e-6))(zeros), zeros, 0);
    CHECK_CLOSE(make_layer_norm(3, Real(1e-6))(zeros), zeros, 0);
    CHECK_CLOSE(make_layer_norm(3, Real(1e-6))(zeros + Real(7)), zeros, 0);
}

TEST_CASE("norms are initialized with weights of one, LayerNorm with a bias of zero") {
    const LayerNorm layer_norm = make_layer_norm(5, Real(0.25));
    CHECK_CLOSE(layer_norm.weight, (Vector{1, 1, 1, 1, 1}), 0);
    REQUIRE(layer_norm.bias.has_value());
    CHECK_CLOSE(*layer_norm.bias, (Vector{0, 0, 0, 0, 0}), 0);
    CHECK(layer_norm.eps == Real(0.25));
    CHECK(num_parameters(layer_norm) == 10);

    RMSNorm rms_norm = make_rms_norm(5, Real(0.25));
    CHECK_CLOSE(rms_norm.weight, (Vector{1, 1, 1, 1, 1}), 0);
    CHECK_FALSE(rms_norm.bias.has_value());
    CHECK(rms_norm.eps == Real(0.25));
    CHECK(num_parameters(rms_norm) == 5);
    rms_norm.bias = Vector{0, 0, 0, 0, 0};
    CHECK(num_parameters(rms_norm) == 10);
    CHECK(num_parameters(LayerNorm{Vector{1, 1}, {}}) == 2);
    CHECK(LayerNorm{Vector{1}, {}}.eps == Real(1e-5));  // PyTorch's
    CHECK(RMSNorm{Vector{1}}.eps == Real(1e-6));        // Hugging Face's
}

TEST_CASE("norms throw, with both shapes, if the size of weight or bias does not match") {
    const Matrix rows = counting({2, 3});
    CHECK_THROWS_WITH_AS((RMSNorm{Vector{1, 1}}(rows)),
                         "norm: weights of (2,) do not match rows of (2, 3)", ValueError);
    CHECK_THROWS_WITH_AS(
        (LayerNorm{Vector{1}, {}}(rows)),  // a single weight must not broadcast
        "norm: weights of (1,) do not match rows of (2, 3)", ValueError);
    CHECK_THROWS_WITH_AS((LayerNorm{Vector{1, 1, 1}, Vector{0}}(rows)),
                         "norm: a bias of (1,) does not match rows of (2, 3)", ValueError);
    CHECK_THROWS_AS(rms_norm_in_half(ones_in_half(2, 3), weights_of_one(1), 0), ValueError);
    CHECK_THROWS_AS(
        rms_norm_upcast(ones_in_half(2, 3), weights_of_one(1), 0, CastBack::after_weight),
        ValueError);
}

TEST_CASE("gemma_norm multiplies by 1 + w") {
    const Matrix x{{3, 4}};
    CHECK_CLOSE(gemma_norm(Vector{0, 0}, 0)(x), rms_normalize(x, 0), 0);
    CHECK_CLOSE(gemma_norm(Vector{1, -0.5}, Real(0.5))(x),
                rms_normalize(x, Real(0.5)) * (Matrix{{2, 0.5}}), 1e-6);
}

TEST_CASE("partial_rms_normalize uses the RMS of the first 7 of 20 features") {
    const Tensor3 states = pinned<3>("hidden_states");
    const Matrix rows = xt::view(states, 0);
    CHECK_CLOSE(partial_rms_normalize(rows, 0.38, Real(1e-5)), pinned<2>("partial"), 1e-5);
    CHECK_CLOSE(partial_rms_normalize(rows, 0.38, Real(0.5)), pinned<2>("partial_large_eps"),
                1e-5);
    CHECK_CLOSE(partial_rms_normalize(rows, 1, Real(0.5)), rms_normalize(rows, Real(0.5)), 0);
}

TEST_CASE(
    "partial_rms_normalize throws if the fraction leaves no feature or is not at most 1") {
    const Matrix rows = counting({2, 4});
    CHECK_THROWS_WITH_AS(partial_rms_normalize(rows, 0.1, 0),
                         "partial_rms_normalize: the fraction of 4 features is less than one",
                         ValueError);
    for (const double fraction : {0.0, -1.0, 1.25, std::nan("")})
        CHECK_THROWS_WITH_AS(
            partial_rms_normalize(rows, fraction, 0),
            "partial_rms_normalize: the fraction must be above 0 and at most 1", ValueError);
    CHECK_NOTHROW(partial_rms_normalize(rows, 0.25, 0));
}

TEST_CASE("rms_norm_upcast equals PyTorch's, cast back before or after the weight") {
    const HalfMatrix rows = halves_of(pinned<2>("halves"));
    const HalfVector weight = pinned<1>("half_weight");
    CHECK_CLOSE(Matrix(rms_norm_upcast(rows, weight, Real(1e-3), CastBack::before_weight)),
                pinned<2>("cast_before_weight"), 0);
    CHECK_CLOSE(Matrix(rms_norm_upcast(rows, weight, Real(1e-3), CastBack::after_weight)),
                pinned<2>("cast_after_weight"), 0);
}

TEST_CASE("rms_norm_in_half rounds every step, as NumPy does") {
    CHECK_CLOSE(Matrix(rms_norm_in_half(halves_of(pinned<2>("halves")),
                                        pinned<1>("half_weight"), Real(1e-3))),
                pinned<2>("in_half"), 0);
}

TEST_CASE("rms_norm_in_half rounds each square before it is added") {
    // 1.4140625 squared is 1.99957, in float16 2. 4100 + 2 is halfway between the float16
    // values 4100 and 4104 and is rounded to the even one, 4104. The root of 4104 / 3 is 37 in
    // float16.
    const HalfMatrix row = halves_of(Matrix{{64, 2, Real(1.4140625)}});
    CHECK(Matrix(rms_norm_in_half(row, weights_of_one(3), 0))(0, 0) ==
          static_cast<Real>(Half(64.0f / 37)));
}

TEST_CASE("in float16, 256 squared is infinite, and 2048 plus 1 is 2048") {
    const auto in_half = [](std::size_t count, float size) {
        return Matrix(rms_norm_in_half(ones_in_half(1, count, size), weights_of_one(count), 0))(
            0, 0);
    };
    CHECK(in_half(1, 255) == 1);
    CHECK(in_half(1, 256) == 0);  // 65536 is infinite, and 256 / infinity is 0
    CHECK(in_half(4096, 1) == doctest::Approx(std::sqrt(2)).epsilon(1e-3));  // half the squares
    for (const float size : {1.0f, 256.0f, 60000.0f}) {
        const Matrix right = rms_norm_upcast(ones_in_half(1, 4096, size), weights_of_one(4096),
                                             0, CastBack::before_weight);
        CHECK(right(0, 0) == 1);
    }
}

TEST_CASE("to_bfloat16 equals PyTorch's, ties to even") {
    Vector values = pinned<1>("values");
    for (Real& value : values) value = to_float(to_bfloat16(value));
    const Vector expected = pinned<1>("bfloat16");
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(values(i) == expected(i));
    CHECK(to_float(to_bfloat16(infinity)) == infinity);
    CHECK(to_float(to_bfloat16(-infinity)) == -infinity);
}

TEST_CASE("to_bfloat16 keeps NaN a NaN, with its sign and the upper bits of its payload") {
    const auto bfloat16_bits = [](std::uint32_t float_bits) {
        return to_bfloat16(std::bit_cast<float>(float_bits)).bits;
    };
    // Adding to the bits of this NaN would carry into the sign and make it -0.
    CHECK(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7FFFFFFFu)))));
    CHECK(bfloat16_bits(0x7FFFFFFF) == 0x7FFF);
    CHECK(bfloat16_bits(0xFFFFFFFF) == 0xFFFF);
    CHECK(bfloat16_bits(0x7FC00000) == 0x7FC0);  // the usual quiet NaN
    CHECK(bfloat16_bits(0xFFC00000) == 0xFFC0);
    CHECK(bfloat16_bits(0x7FD58000) == 0x7FD5);  // not rounded to 7FD6
    // A payload in the lower half only must not become infinity.
    CHECK(bfloat16_bits(0x7F800001) == 0x7FC0);
    CHECK(bfloat16_bits(0xFF800001) == 0xFFC0);
}
