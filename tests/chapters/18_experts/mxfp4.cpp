// MXFP4, the format of gpt-oss's experts.
#include "chapters/18_experts/mxfp4.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("dequantize_mxfp4 by hand: the lower half of a byte first, a power of 2 per block") {
    std::vector<std::byte> blocks(32), scales = {std::byte{127}, std::byte{125}};
    blocks[0] = std::byte{0x71};   // 0.5, then 6
    blocks[1] = std::byte{0xFA};   // -1, then -6
    blocks[31] = std::byte{0x52};  // 1, then 3, with a scale of 1/4
    const Vector weights = dequantize_mxfp4(blocks, scales);
    REQUIRE(weights.size() == 64);
    CHECK(weights(0) == Real(0.5));
    CHECK(weights(1) == 6);
    CHECK(weights(2) == -1);
    CHECK(weights(3) == -6);
    CHECK(weights(4) == 0);
    CHECK(weights(62) == Real(0.25));
    CHECK(weights(63) == Real(0.75));
    CHECK_THROWS_WITH_AS(dequantize_mxfp4(std::span(blocks).first(31), scales),
                         "dequantize_mxfp4: 31 bytes of blocks do not match 2 scales",
                         ValueError);
}

TEST_CASE(
    "dequantize_mxfp4: the 16 values of E2M1, a sign, two exponent bits and one of mantissa") {
    std::array<std::byte, 16> blocks;
    for (unsigned i = 0; i < 16; ++i) blocks[i] = std::byte(i);  // the upper halves are 0
    const std::array scales = {std::byte{127}};
    const Vector weights = dequantize_mxfp4(blocks, scales);
    for (int code = 0; code < 16; ++code) {
        INFO(code);
        // Without exponent, the mantissa counts halves; otherwise it follows a 1.
        const int exponent = code >> 1 & 3, mantissa = code & 1;
        const Real magnitude = exponent == 0 ? Real(mantissa) / 2
                                             : std::ldexp(1 + Real(mantissa) / 2, exponent - 1);
        CHECK(weights(std::size_t(2 * code)) == (code < 8 ? magnitude : -magnitude));
        CHECK(weights(std::size_t(2 * code + 1)) == 0);
    }
}

TEST_CASE("dequantize_mxfp4: a scale of NaN, and weights that overflow, are rejected") {
    std::vector<std::byte> blocks(32), scales = {std::byte{127}, std::byte{254}};
    blocks[20] = std::byte{0x01};  // 0.5 · 2^127
    CHECK(dequantize_mxfp4(blocks, scales)(40) == std::ldexp(Real(0.5), 127));
    blocks[20] = std::byte{0x70};  // 6 · 2^127
    CHECK_THROWS_WITH_AS(dequantize_mxfp4(blocks, scales),
                         "dequantize_mxfp4: block 1 has a scale of 254: its weights are not "
                         "finite",
                         ValueError);
    blocks[20] = std::byte{0};
    scales[1] = std::byte{255};  // also where all weights are 0
    CHECK_THROWS_WITH_AS(dequantize_mxfp4(blocks, scales),
                         "dequantize_mxfp4: block 1 has a scale of 255: its weights are not "
                         "finite",
                         ValueError);
}
