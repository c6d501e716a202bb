#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

// Rows whose mean is about 3.
Matrix shifted_rows() {
    Generator generator(7);
    return randn({3, 6}, generator) * Real(2) + Real(3);
}

}  // namespace

TEST_CASE("7.1 find the bug: a token that depends on later tokens") {
    Generator generator(1);
    const Tensor3 states = randn({2, 3, 4}, generator);
    INFO("the mean of the squares is over the features of one token");
    CHECK_CLOSE(normalized_tokens(states, Real(1e-5)), make_rms_norm(4, Real(1e-5))(states),
                1e-6);
}

TEST_CASE("7.2 find the bug: rows of small values") {
    const Matrix rows{{3, 4}, {Real(3e-4), Real(4e-4)}};
    INFO("both rows, the one of large and the one of small values");
    CHECK_CLOSE(rms_norm_of_rows(rows, Real(1e-5)), rms_normalize(rows, Real(1e-5)), 1e-6);
}

TEST_CASE("7.3 find the bug: right direction, wrong scale") {
    INFO("an output RMS of about 1, whatever the width");
    CHECK_CLOSE(rms_norm_from_formula(shifted_rows(), Real(0.5)),
                rms_normalize(shifted_rows(), Real(0.5)), 1e-6);
}

TEST_CASE("7.4 find the bug: a small error") {
    const Matrix centered_rows{{-5, 1, 1, 3}, {3, -1, -1, -1}};
    INFO("the result of PyTorch's LayerNorm");
    CHECK_CLOSE(unit_variance(centered_rows, Real(1e-5)),
                layer_normalize(centered_rows, Real(1e-5)), 1e-6);
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
    INFO("p = 0.7 of four features: the first two. The RMS of the first two of row 1 is 0");
    CHECK_CLOSE(original_rms_norm(rows, scale, offset, 0.7, Real(0.25)),
                (Matrix{{first(first_half), first(first_half) * 8 / 3, 5, 0}, {0, 0, 9, 4}}),
                1e-6);
    INFO("p = 0: the first feature");
    CHECK_CLOSE(original_rms_norm(Matrix{{3, 4}}, Vector{1, 1}, Vector{0, 0}, 0, Real(0.25)),
                (Matrix{{first(3), first(3) * 4 / 3}}), 1e-6);
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
