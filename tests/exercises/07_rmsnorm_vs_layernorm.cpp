#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/half_precision.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// Rows whose mean is about 3.
Matrix shifted_rows() {
    Generator generator(7);
    return randn({3, 6}, generator) * Real(2) + Real(3);
}

}  // namespace

TEST_CASE("7.1 predict the outputs of both norms") {
    const Matrix prediction = predicted_norms();
    const Matrix token{{1, 1, 7, 7}};
    const Matrix outputs =
        xt::concatenate(xt::xtuple(layer_normalize(token, 0), rms_normalize(token, 0)), 0);
    INFO("LayerNorm in row 0, RMSNorm in row 1");
    CHECK_CLOSE(prediction, outputs, 0.01);
}

TEST_CASE("7.2 predict the effect of eps") {
    const Vector prediction = predicted_output_rms();
    const Real rms = Real(0.003), eps = Real(1.6e-5);
    const Vector outputs{rms / std::sqrt(rms * rms + eps), rms / (rms + eps)};
    INFO("the RMS of the output with eps inside and outside the square root");
    CHECK_CLOSE(prediction, outputs, 0.01);
}

TEST_CASE("7.3 predict what float16 gives") {
    const Vector prediction = predicted_half_outputs();
    const HalfVector weight(std::array<std::size_t, 1>{64}, Half(1));
    Vector outputs = xt::zeros<Real>({2});
    for (const std::size_t n : {0, 1}) {
        const Matrix token = xt::ones<Real>({1, 64}) * Real(30 + 10 * n);
        outputs(n) = to_float(rms_norm_in_half(to_half(token), weight, Real(1e-6)))(0, 0);
    }
    INFO("a feature of the first and of the second token");
    CHECK_CLOSE(prediction, outputs, 0.01);
}

TEST_CASE("7.4 find the bug: tokens of different size") {
    INFO("the deviations from the mean, divided by the standard deviation");
    CHECK_CLOSE(unit_variance(Matrix{{-1, 5, 5, 7}, {10001, 10003, 10001, 10003}}, Real(1e-5)),
                layer_normalize(Matrix{{-1, 5, 5, 7}, {-1, 1, -1, 1}}, Real(1e-5)), 1e-4);
}

TEST_CASE("7.5 find the bug: rows whose mean is not 0") {
    INFO("the mean of 1 2 6 is 3");
    CHECK_CLOSE(centered(Matrix{{1, 2, 6}, {0, 4, 2}}), (Matrix{{-2, -1, 3}, {-2, 2, 0}}),
                1e-6);
}

TEST_CASE("7.6 write original_rms_norm") {
    const Matrix rows{{3, 4, 0, 0}, {0, 0, 1, 1}};
    const Vector scale{1, 2, 1, 1}, offset{0, 0, 5, 0};
    const auto first = [](Real rms) { return 3 / (rms + Real(0.25)); };  // the 3 of row 0
    const Real first_half = std::sqrt(Real(12.5)), all = std::sqrt(Real(6.25));
    {
        INFO("p = 0.7 of four features: the first two. The RMS of the first two of row 1 is 0");
        CHECK_CLOSE(
            original_rms_norm(rows, scale, offset, 0.7, Real(0.25)),
            (Matrix{{first(first_half), first(first_half) * 8 / 3, 5, 0}, {0, 0, 9, 4}}), 1e-6);
    }
    {
        INFO("p = 0: the first feature");
        CHECK_CLOSE(
            original_rms_norm(Matrix{{3, 4}}, Vector{1, 1}, Vector{0, 0}, 0, Real(0.25)),
            (Matrix{{first(3), first(3) * 4 / 3}}), 1e-6);
    }
    INFO("p = -1 or 1.5: all features");
    const Real small = 1 / (std::sqrt(Real(0.5)) + Real(0.25));
    for (const double p : {-1.0, 1.5})
        CHECK_CLOSE(original_rms_norm(rows, scale, offset, p, Real(0.25)),
                    (Matrix{{first(all), first(all) * 8 / 3, 5, 0}, {0, 0, small + 5, small}}),
                    1e-6);
}

TEST_CASE("7.7 write layer_norm_from_rms") {
    const LayerNorm norm{Vector{1, 2, 3, 4, 5, 6}, Vector{1, 0, -1, 2, 0, 3}, Real(0.5)};
    INFO("the result of LayerNorm, with its weight, bias and eps");
    CHECK_CLOSE(layer_norm_from_rms(shifted_rows(), norm), norm(shifted_rows()), 1e-5);
}

TEST_CASE("7.8 write without_norm_weight") {
    Generator generator(8);
    const Linear linear = make_linear(6, 5, true, generator);
    const RMSNorm norm{Vector{1, 2, 3, 4, 5, 6}, Real(1e-5)};
    INFO("the same output, after a norm without weights");
    CHECK_CLOSE(without_norm_weight(norm, linear)(rms_normalize(shifted_rows(), Real(1e-5))),
                linear(norm(shifted_rows())), 1e-5);
}
