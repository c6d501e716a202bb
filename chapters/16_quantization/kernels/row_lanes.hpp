// Chapter 16, kernels: vector registers with four weights of one row in each lane. Only
// integer_products.cpp and interleave.cpp include this file, which are compiled for the machine
// they are built on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/tensors/real.hpp"

// Without vector instructions, Highway emulates them (EMU128). It avoids this with GCC before
// 12.3, because of a bug in operations that are not used here. Registers of Arm's SVE cannot be
// elements of an array; NEON is used instead.
#define HWY_BROKEN_EMU128 0
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

// Which instruction multiplies integers of 8 bits?
#if HWY_MAX_BYTES >= 64 && defined(__AVX512VNNI__)
#define LLM_VNNI(sums, weights, inputs) _mm512_dpbusd_epi32(sums, weights, inputs)
#elif HWY_MAX_BYTES == 32 && defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define LLM_VNNI(sums, weights, inputs) _mm256_dpbusd_epi32(sums, weights, inputs)
#elif HWY_MAX_BYTES == 32 && defined(__AVXVNNI__)
#define LLM_VNNI(sums, weights, inputs) _mm256_dpbusd_avx_epi32(sums, weights, inputs)
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#define LLM_MADDUBS
#elif HWY_ARCH_ARM_A64 && defined(__ARM_FEATURE_DOTPROD)
#define LLM_SDOT
#endif

namespace llm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A lane of 32 bits holds four weights, four inputs, or the sum of their products.
constexpr hn::CappedTag<std::int32_t, 16> integers;
constexpr hn::Rebind<Real, decltype(integers)> floats;
using Integers = hn::Vec<decltype(integers)>;
using Floats = hn::Vec<decltype(floats)>;
constexpr std::size_t num_lanes = hn::MaxLanes(integers);

// The magnitude of a weight is at most `largest`. Only weights from -128 to 127 have a sign.
constexpr int largest_with_sign = 128;

// The same four inputs in all lanes.
HWY_INLINE Integers four_inputs(const std::int8_t* inputs) {
    std::int32_t four;
    std::memcpy(&four, inputs, sizeof four);
    return hn::Set(integers, four);
}

#ifdef LLM_VNNI

// VNNI multiplies unsigned weights by signed inputs and adds the four products of a lane to its
// sum, all with one instruction.
constexpr bool signed_weights = false;
constexpr auto instruction_name = "VNNI";
template <int largest, std::size_t count>
HWY_INLINE Integers sum_products(const Integers* weights, const std::int8_t* inputs) {
    Integers sums = hn::Zero(integers);
    for (std::size_t i = 0; i < count; ++i)
        sums = Integers{LLM_VNNI(sums.raw, weights[i].raw, four_inputs(inputs + 4 * i).raw)};
    return sums;
}

#elif defined(LLM_MADDUBS)

#if HWY_MAX_BYTES >= 64
HWY_INLINE __m512i absolute(__m512i weights) { return _mm512_abs_epi8(weights); }
HWY_INLINE __m512i with_sign_of(__m512i inputs, __m512i weights) {
    const __mmask64 negative = _mm512_movepi8_mask(weights);
    return _mm512_mask_sub_epi8(inputs, negative, _mm512_setzero_si512(), inputs);
}
HWY_INLINE __m512i sum_pairs(__m512i a, __m512i b) { return _mm512_maddubs_epi16(a, b); }
HWY_INLINE __m512i add_pairs(__m512i a, __m512i b) { return _mm512_add_epi16(a, b); }
HWY_INLINE __m512i sum_fours(__m512i pairs) {
    return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif HWY_MAX_BYTES == 32
HWY_INLINE __m256i absolute(__m256i weights) { return _mm256_abs_epi8(weights); }
HWY_INLINE __m256i with_sign_of(__m256i inputs, __m256i weights) {
    return _mm256_sign_epi8(inputs, weights);
}
HWY_INLINE __m256i sum_pairs(__m256i a, __m256i b) { return _mm256_maddubs_epi16(a, b); }
HWY_INLINE __m256i add_pairs(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
HWY_INLINE __m256i sum_fours(__m256i pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#else
HWY_INLINE __m128i absolute(__m128i weights) { return _mm_abs_epi8(weights); }
HWY_INLINE __m128i with_sign_of(__m128i inputs, __m128i weights) {
    return _mm_sign_epi8(inputs, weights);
}
HWY_INLINE __m128i sum_pairs(__m128i a, __m128i b) { return _mm_maddubs_epi16(a, b); }
HWY_INLINE __m128i add_pairs(__m128i a, __m128i b) { return _mm_add_epi16(a, b); }
HWY_INLINE __m128i sum_fours(__m128i pairs) { return _mm_madd_epi16(pairs, _mm_set1_epi16(1)); }
#endif

// maddubs multiplies unsigned weights by signed inputs, and sums pairs of products in 16 bits:
// a sum beyond 32767 saturates, without notice. The magnitude of an input is at most 127, that
// of a weight at most `largest`, so no sum of pairs exceeds 2 * 127 * largest. As many of those
// are added in 16 bits as never exceed 32767, then pairs of sums in 32 bits.
constexpr bool signed_weights = true;
constexpr auto instruction_name = "maddubs";
template <int largest, std::size_t count>
HWY_INLINE Integers sum_products(const Integers* weights, const std::int8_t* inputs) {
    constexpr int largest_sum = 2 * 127 * largest;
    static_assert(largest_sum <= 32767);
    constexpr std::size_t adds = 32767 / largest_sum;
    Integers sums = hn::Zero(integers);
    for (std::size_t begin = 0; begin < count; begin += adds) {
        auto pairs = hn::Zero(integers).raw;
        for (std::size_t i = begin; i < count && i < begin + adds; ++i) {
            const auto x = four_inputs(inputs + 4 * i).raw;
            // Weights with a sign: their magnitudes, and inputs that get the sign.
            if constexpr (largest == largest_with_sign)
                pairs = sum_pairs(absolute(weights[i].raw), with_sign_of(x, weights[i].raw));
            else
                pairs = add_pairs(pairs, sum_pairs(weights[i].raw, x));
        }
        sums = hn::Add(sums, Integers{sum_fours(pairs)});
    }
    return sums;
}

#elif defined(LLM_SDOT)

// Arm's sdot multiplies signed integers.
constexpr bool signed_weights = true;
constexpr auto instruction_name = "sdot";
template <int largest, std::size_t count>
HWY_INLINE Integers sum_products(const Integers* weights, const std::int8_t* inputs) {
    const auto bytes = [](Integers values) { return vreinterpretq_s8_s32(values.raw); };
    Integers sums = hn::Zero(integers);
    for (std::size_t i = 0; i < count; ++i)
        sums = Integers{
            vdotq_s32(sums.raw, bytes(weights[i]), bytes(four_inputs(inputs + 4 * i)))};
    return sums;
}

#else

// Without such an instruction: the even and the odd bytes are widened to 16 bits. Highway sums
// pairs of products in two registers, in an order of its own.
constexpr bool signed_weights = true;
constexpr auto instruction_name = "multiplication of 16 bits";
template <int largest, std::size_t count>
HWY_INLINE Integers sum_products(const Integers* weights, const std::int8_t* inputs) {
    constexpr hn::Repartition<std::int16_t, decltype(integers)> shorts;
    const auto even = [&](Integers bytes) {
        return hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(shorts, bytes)));
    };
    const auto odd = [&](Integers bytes) {
        return hn::ShiftRight<8>(hn::BitCast(shorts, bytes));
    };
    Integers sums = hn::Zero(integers), more = sums;
    for (std::size_t i = 0; i < count; ++i) {
        const Integers x = four_inputs(inputs + 4 * i);
        sums = hn::ReorderWidenMulAccumulate(integers, even(weights[i]), even(x), sums, more);
        sums = hn::ReorderWidenMulAccumulate(integers, odd(weights[i]), odd(x), sums, more);
    }
    return hn::RearrangeToOddPlusEven(sums, more);
}

#endif

}  // namespace
}  // namespace llm
