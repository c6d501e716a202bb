#include <bit>
#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "tests/check.hpp"

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

TEST_CASE("by hand: mean 4, deviation 3, root mean square 5") {
    const Matrix x{{-1, 5, 5, 7}};
    CHECK_CLOSE(layer_normalize(x, 0), (Matrix{{-5, 1, 1, 3}}) / Real(3), 1e-6);
    CHECK_CLOSE(rms_normalize(x, 0), x / Real(5), 1e-6);
}

TEST_CASE("LayerNorm equals PyTorch's, eps inside the root") {
    const Tensor3 x = pinned<3>("hidden_states");
    CHECK_CLOSE(pinned_layer_norm(Real(1e-5))(x), pinned<3>("layer_norm"), 1e-5);
    CHECK_CLOSE(pinned_layer_norm(Real(0.5))(x), pinned<3>("layer_norm_large_eps"), 1e-5);
    LayerNorm norm = pinned_layer_norm(Real(1e-5));
    norm.bias.reset();
    CHECK_CLOSE(norm(x), pinned<3>("layer_norm_no_bias"), 1e-5);
}

TEST_CASE("RMSNorm equals PyTorch's, eps inside the root") {
    const Tensor3 x = pinned<3>("hidden_states");
    CHECK_CLOSE(pinned_rms_norm(Real(1e-5))(x), pinned<3>("rms_norm"), 1e-5);
    CHECK_CLOSE(pinned_rms_norm(Real(0.5))(x), pinned<3>("rms_norm_large_eps"), 1e-5);
    RMSNorm norm = pinned_rms_norm(Real(0.5));
    norm.bias = pinned<1>("bias");
    CHECK_CLOSE(norm(x), pinned<3>("rms_norm_bias_large_eps"), 1e-5);
}

TEST_CASE("the walk: both norms of the sample input equal PyTorch's") {
    Generator generator(77);
    const Tensor3 x = randn({2, 10, 128}, generator);
    CHECK_CLOSE(make_layer_norm(128, Real(1e-5))(x), pinned<3>("walk_layer_norm"), 1e-5);
    CHECK_CLOSE(make_rms_norm(128, Real(1e-5))(x), pinned<3>("walk_rms_norm"), 1e-5);
}

TEST_CASE("LayerNorm forgets shift and scale, RMSNorm only scale") {
    Generator generator(1);
    const Matrix x = randn({3, 50}, generator);
    CHECK_CLOSE(layer_normalize(x * Real(4) + Real(10), 0), layer_normalize(x, 0), 1e-5);
    CHECK_CLOSE(layer_normalize(x + Real(1000), 0), layer_normalize(x, 0), 1e-3);
    CHECK_CLOSE(rms_normalize(x * Real(4), 0), rms_normalize(x, 0), 1e-6);
    CHECK_FALSE(difference(rms_normalize(x + Real(10), 0), rms_normalize(x, 0), 0.5).empty());
    // Both keep the sign.
    CHECK_CLOSE(layer_normalize(x * Real(-1), 0), layer_normalize(x, 0) * Real(-1), 1e-6);
}

TEST_CASE("LayerNorm is RMSNorm of the centred input") {
    const Matrix x{{-1, 5, 5, 7}, {2, 0, 0, -6}}, centred{{-5, 1, 1, 3}, {3, 1, 1, -5}};
    CHECK_CLOSE(layer_normalize(x, Real(0.5)), rms_normalize(centred, Real(0.5)), 1e-6);
}

TEST_CASE("a norm knows one token only") {
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

TEST_CASE("a row of zeros stays a row of zeros") {
    const Matrix zeros = xt::zeros<Real>({2, 3});
    CHECK_CLOSE(make_rms_norm(3, Real(1e-6))(zeros), zeros, 0);
    CHECK_CLOSE(make_layer_norm(3, Real(1e-6))(zeros), zeros, 0);
    CHECK_CLOSE(make_layer_norm(3, Real(1e-6))(zeros + Real(7)), zeros, 0);
}

TEST_CASE("norms start with weights of one, LayerNorm with a shift of zero") {
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

TEST_CASE("norms name both shapes when weights or bias do not fit") {
    const Matrix rows = counting({2, 3});
    CHECK_THROWS_WITH_AS((RMSNorm{Vector{1, 1}}(rows)),
                         "norm: weights of (2,) do not fit rows of (2, 3)", ShapeError);
    CHECK_THROWS_WITH_AS((LayerNorm{Vector{1}, {}}(rows)),  // a single weight must not stretch
                         "norm: weights of (1,) do not fit rows of (2, 3)", ShapeError);
    CHECK_THROWS_WITH_AS((LayerNorm{Vector{1, 1, 1}, Vector{0}}(rows)),
                         "norm: a bias of (1,) does not fit rows of (2, 3)", ShapeError);
    CHECK_THROWS_AS(rms_norm_in_half(ones_in_half(2, 3), weights_of_one(1), 0), ShapeError);
    CHECK_THROWS_AS(
        rms_norm_upcast(ones_in_half(2, 3), weights_of_one(1), 0, CastBack::after_weight),
        ShapeError);
}

TEST_CASE("gemma_norm: stored zeros mean weights of one") {
    const Matrix x{{3, 4}};
    CHECK_CLOSE(gemma_norm(Vector{0, 0}, 0)(x), rms_normalize(x, 0), 0);
    CHECK_CLOSE(gemma_norm(Vector{1, -0.5}, Real(0.5))(x),
                rms_normalize(x, Real(0.5)) * (Matrix{{2, 0.5}}), 1e-6);
}

TEST_CASE("partial_rms_normalize: the first 7 of 20 numbers stand for all") {
    const Tensor3 states = pinned<3>("hidden_states");
    const Matrix rows = xt::view(states, 0);
    CHECK_CLOSE(partial_rms_normalize(rows, 0.38, Real(1e-5)), pinned<2>("partial"), 1e-5);
    CHECK_CLOSE(partial_rms_normalize(rows, 0.38, Real(0.5)), pinned<2>("partial_large_eps"),
                1e-5);
    CHECK_CLOSE(partial_rms_normalize(rows, 1, Real(0.5)), rms_normalize(rows, Real(0.5)), 0);
}

TEST_CASE("partial_rms_normalize names a share that leaves nothing or exceeds all") {
    const Matrix rows = counting({2, 4});
    CHECK_THROWS_WITH_AS(partial_rms_normalize(rows, 0.1, 0),
                         "partial_rms_normalize: the share of 4 numbers is less than one",
                         ShapeError);
    for (const double share : {0.0, -1.0, 1.25, std::nan("")})
        CHECK_THROWS_WITH_AS(partial_rms_normalize(rows, share, 0),
                             "partial_rms_normalize: the share must be above 0 and at most 1",
                             ShapeError);
    CHECK_NOTHROW(partial_rms_normalize(rows, 0.25, 0));
}

TEST_CASE("16 bits with 32 inside equal PyTorch's, cast back before or after the weight") {
    const HalfMatrix rows = halves_of(pinned<2>("halves"));
    const HalfVector weight = pinned<1>("half_weight");
    CHECK_CLOSE(Matrix(rms_norm_upcast(rows, weight, Real(1e-3), CastBack::before_weight)),
                pinned<2>("cast_before_weight"), 0);
    CHECK_CLOSE(Matrix(rms_norm_upcast(rows, weight, Real(1e-3), CastBack::after_weight)),
                pinned<2>("cast_after_weight"), 0);
}

TEST_CASE("16 bits throughout: every step rounded, as NumPy does it") {
    CHECK_CLOSE(Matrix(rms_norm_in_half(halves_of(pinned<2>("halves")),
                                        pinned<1>("half_weight"), Real(1e-3))),
                pinned<2>("in_half"), 0);
}

TEST_CASE("16 bits throughout: a square is rounded before it is added") {
    // 1.4140625 squared is 1.99957, as a half 2. 4100 + 2 lies between the halves 4100 and 4104
    // and goes to the even one, 4104. Then 4104 / 3 has the root 37.
    const HalfMatrix row = halves_of(Matrix{{64, 2, Real(1.4140625)}});
    CHECK(Matrix(rms_norm_in_half(row, weights_of_one(3), 0))(0, 0) ==
          static_cast<Real>(Half(64.0f / 37)));
}

TEST_CASE("16 bits throughout: 256 squared is too much, and 2048 plus 1 is 2048") {
    const auto in_half = [](std::size_t count, float size) {
        return Matrix(rms_norm_in_half(ones_in_half(1, count, size), weights_of_one(count), 0))(
            0, 0);
    };
    CHECK(in_half(1, 255) == 1);
    CHECK(in_half(1, 256) == 0);  // 65536 is infinite, and what infinity divides is 0
    CHECK(in_half(4096, 1) == doctest::Approx(std::sqrt(2)).epsilon(1e-3));  // half the squares
    for (const float size : {1.0f, 256.0f, 60000.0f}) {
        const Matrix right = rms_norm_upcast(ones_in_half(1, 4096, size), weights_of_one(4096),
                                             0, CastBack::before_weight);
        CHECK(right(0, 0) == 1);
    }
}

TEST_CASE("to_bfloat16 equals PyTorch's, ties to even") {
    Vector numbers = pinned<1>("numbers");
    for (Real& number : numbers) number = to_bfloat16(number);
    const Vector expected = pinned<1>("bfloat16");
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers(i) == expected(i));
    // Adding to the bits of this NaN would carry into the sign and make it -0.
    CHECK(std::isnan(to_bfloat16(std::bit_cast<float>(0x7FFFFFFF))));
    CHECK(to_bfloat16(infinity) == infinity);
}
