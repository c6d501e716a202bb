// YaRN and dynamic NTK scaling, against the published formulas.
#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/17_long_context/yarn.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Vector yarn_fixture(const std::string& name) { return fixture<1>("17_long_context/" + name); }

}  // namespace

TEST_CASE("yarn_frequencies equal the published ones, relative to each frequency") {
    const auto check_relative = [](const Vector& actual, const Vector& expected) {
        REQUIRE(actual.shape() == expected.shape());
        for (std::size_t i = 0; i < actual.size(); ++i)
            CHECK(actual(i) == doctest::Approx(double(expected(i))).epsilon(2e-5));
    };
    check_relative(yarn_frequencies(24, 10000, {8, 256}), yarn_fixture("yarn_8"));
    check_relative(yarn_frequencies(64, 150000, {32, 4096, 32, 1, false}),
                   yarn_fixture("yarn_gpt_oss"));
    check_relative(yarn_frequencies(10, 500, {4, 16, 8, Real(1e-5)}),
                   yarn_fixture("yarn_narrow"));
}

TEST_CASE("YaRN with a context so short that the transition has no width gives numbers") {
    const Vector original = inverse_frequencies(24, 10000);
    for (const Real original_len : {1, 2, 3, 6}) {
        const Vector scaled = yarn_frequencies(24, 10000, {8, original_len});
        for (std::size_t i = 0; i < 12; ++i) {
            CHECK(scaled(i) <= original(i));
            CHECK(scaled(i) >= original(i) / 8 * Real(0.9999));
        }
    }
}

TEST_CASE("YaRN keeps high frequencies and interpolates low ones") {
    const Vector original = inverse_frequencies(24, 10000);
    const Vector scaled = yarn_frequencies(24, 10000, {8, 256});
    CHECK(scaled(0) == original(0));
    CHECK(scaled(11) == doctest::Approx(double(original(11)) / 8));
    for (std::size_t i = 0; i < 12; ++i) {
        CHECK(scaled(i) <= original(i));
        CHECK(scaled(i) >= original(i) / 8 * Real(0.9999));
    }
    CHECK_CLOSE(yarn_frequencies(24, 10000, {1, 256}), original, 1e-6);
}

TEST_CASE("YaRN's factor multiplies both cosine and sine") {
    CHECK(yarn_attention_factor({32, 4096}) == doctest::Approx(0.1 * std::log(32.0) + 1));
    CHECK(yarn_attention_factor({1, 4096}) == 1);
    YarnScaling scaling{8, 256};
    const RotaryTable table = make_yarn_rotary_table(24, 10000, scaling, 13);
    CHECK_CLOSE(table.cos, fixture<2>("17_long_context/yarn_cos"), 1e-5);
    CHECK_CLOSE(table.sin, fixture<2>("17_long_context/yarn_sin"), 1e-5);
    scaling.attention_factor = Real(1.5);
    CHECK(make_yarn_rotary_table(24, 10000, scaling, 2).cos(0, 0) == 1.5f);
}

TEST_CASE("dynamic NTK: the original theta until the context is full, then a growing one") {
    CHECK(dynamic_ntk_theta(10000, 4, 16, 100, 256) == doctest::Approx(10000));
    CHECK(dynamic_ntk_theta(10000, 4, 16, 256, 256) == doctest::Approx(10000));
    // Twice the context: 4 · 2 - 3 = 5.
    CHECK(dynamic_ntk_theta(10000, 4, 16, 512, 256) ==
          doctest::Approx(10000 * std::pow(5.0, 16.0 / 14.0)).epsilon(1e-5));
}

TEST_CASE("YaRN names settings that make no sense") {
    CHECK_THROWS_WITH_AS(yarn_frequencies(8, 10000, {Real(0.5), 256}),
                         "yarn: the factor must be at least 1", ValueError);
    CHECK_THROWS_WITH_AS(yarn_frequencies(8, 10000, {2}),
                         "yarn: original_max_position_embeddings must be at least 1",
                         ValueError);
    CHECK(yarn_frequencies(8, 10000, {1, 1}).size() == 4);  // the smallest of both
    CHECK_THROWS_WITH_AS(yarn_frequencies(8, 10000, {2, 256, 1, 1}),
                         "yarn: beta_fast must exceed beta_slow, and both must be positive",
                         ValueError);
}

TEST_CASE("LongRoPE: short or long divisors by the number of positions, and one factor") {
    // Phi-3 with a context of 128k; the factor as vLLM and others state it.
    CHECK(longrope_attention_factor(131072, 4096) == doctest::Approx(1.1902380714238083));
    CHECK(longrope_attention_factor(4096, 4096) == 1);
    CHECK(longrope_attention_factor(2048, 4096) == 1);
    const Vector frequencies = inverse_frequencies(6, 500);
    const LongRopeScaling scaling{{1, 2, 3}, {2, 5, 8}, 9, Real(1.5)};
    for (const std::size_t num_positions : {9, 10}) {
        const RotaryTable table =
            make_longrope_rotary_table(frequencies, scaling, num_positions);
        const Vector& divisors =
            num_positions == 9 ? scaling.short_factor : scaling.long_factor;
        const RotaryTable expected =
            make_rotary_table(Vector(frequencies / divisors), num_positions);
        CHECK_CLOSE(table.cos, Matrix(expected.cos * Real(1.5)), 1e-6);
        CHECK_CLOSE(table.sin, Matrix(expected.sin * Real(1.5)), 1e-6);
    }
    CHECK_THROWS_WITH_AS(make_longrope_rotary_table(inverse_frequencies(8, 500), scaling, 9),
                         "rope: 3 frequency factors for 4 frequencies", ValueError);
}
