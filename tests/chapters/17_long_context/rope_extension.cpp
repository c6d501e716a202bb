// The extensions of RoPE against the functions of chapter 04 and of yarn.hpp.
#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

TEST_CASE("extended_frequencies: each extension is the function of its name") {
    const Config config = short_context_config(12);
    const Vector original = inverse_frequencies(12, 100);
    const auto extended = [&](RopeExtension extension) {
        return extended_frequencies(config, extension, 4);
    };
    CHECK_CLOSE(extended(RopeExtension::none), original, 0);
    CHECK_CLOSE(extended(RopeExtension::position_interpolation), Vector(original / 4), 1e-7);
    CHECK_CLOSE(extended(RopeExtension::ntk_aware),
                inverse_frequencies(12, Real(100 * std::pow(4, 12.0 / 10))), 1e-6);
    CHECK_CLOSE(extended(RopeExtension::llama3), scale_like_llama3(original, {4, 1, 4, 10}), 0);
    CHECK_CLOSE(extended(RopeExtension::yarn), yarn_frequencies(12, 100, {4, 10}), 0);
}

TEST_CASE("extended_rotary_table has factor times as many positions, YaRN's is scaled") {
    const Config config = short_context_config(12);
    for (const auto extension : {RopeExtension::none, RopeExtension::llama3}) {
        const RotaryTable table = extended_rotary_table(config, extension, 4);
        CHECK(table.cos.shape(0) == 40);
        CHECK_CLOSE(table.sin,
                    make_rotary_table(extended_frequencies(config, extension, 4), 40).sin, 0);
    }
    const RotaryTable yarn = extended_rotary_table(config, RopeExtension::yarn, 4);
    CHECK(yarn.cos(0, 0) == doctest::Approx(0.1 * std::log(4.0) + 1));
    CHECK_THROWS_WITH_AS(extended_rotary_table(config, RopeExtension::llama3, 0),
                         "extended_frequencies: the factor must be at least 1", ValueError);
}
