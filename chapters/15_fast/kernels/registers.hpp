// Chapter 15, kernels: vector registers of floats, how weights are loaded into them, and the
// sums of their lanes. Only files with SIMD instructions include this.
#pragma once

#include <array>
#include <cstdint>

#include "common/tensors/dtype.hpp"
#include "common/tensors/half.hpp"

// Highway is an interface to the vector instructions of x86, Arm and WebAssembly. With static
// dispatch, it uses the best instruction set that the compiler options enable. By default it
// uses AVX2 only together with AES, the instructions for encryption, which are not needed here.
// Registers of Arm's SVE cannot be elements of an array; NEON is used instead.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

namespace llm {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The elements of a vector register are called lanes. A tag selects their type and number.
constexpr hn::CappedTag<Real, 4> four_floats;

// As many floats as a register holds, at most 16. LoadU and StoreU load and store one value per
// lane, at any (unaligned) address; Set copies a value to all lanes; MulAdd(a, b, c) is
// a * b + c.
constexpr hn::CappedTag<Real, 16> floats;
using Floats = hn::Vec<decltype(floats)>;  // the contents of one register

template <class Tag>
hn::Vec<Tag> load(Tag tag, const Real* values) {
    return hn::LoadU(tag, values);
}

// Weights and cached values of other types are converted in registers. Storing them as an array
// of floats and loading it would take longer: a load that spans several recent stores has to
// wait for them. Rebind is a tag with the same number of lanes, but of another type.
template <class Tag>
hn::Vec<Tag> load(Tag tag, const Bfloat16* values) {
    const hn::Rebind<std::uint16_t, Tag> upper_halves;
    const hn::Rebind<std::uint32_t, Tag> integers;
    const auto bits = hn::PromoteTo(integers, hn::LoadU(upper_halves, &values->bits));
    return hn::BitCast(tag, hn::ShiftLeft<16>(bits));
}

// Does one instruction convert a register of float16? Otherwise Highway emulates it, but
// without infinities and NaN, and rounds toward 0.
#if defined(__F16C__) || HWY_ARCH_ARM_A64
#define LLM_FLOAT16
#endif

template <class Tag>
hn::Vec<Tag> load(Tag tag, const Half* values) {
#ifdef LLM_FLOAT16
    const hn::Rebind<hwy::float16_t, Tag> halves;
    return hn::PromoteTo(tag,
                         hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(values)));
#else
    // Move exponent and mantissa to their places. The exponents differ by 127 - 15 = 112.
    const hn::Rebind<std::uint16_t, Tag> words;
    const hn::Rebind<std::uint32_t, Tag> integers;
    const auto bits = hn::PromoteTo(
        integers, hn::LoadU(words, reinterpret_cast<const std::uint16_t*>(values)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(integers, 0x7FFF)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(integers, 0x8000)));
    const auto finite = hn::Mul(hn::BitCast(tag, magnitude), hn::Set(tag, 0x1p112f));
    const auto infinite_or_nan =
        hn::BitCast(tag, hn::Or(magnitude, hn::Set(integers, 0x7F800000)));
    const auto value =
        hn::IfThenElse(hn::Ge(finite, hn::Set(tag, 65536)), infinite_or_nan, finite);
    return hn::Or(value, hn::BitCast(tag, sign));
#endif
}

template <class Element>
Floats load(const Element* values) {
    return load(floats, values);
}

// The sums of four registers. Adding up each one alone takes four times as many instructions.
template <class Tag, class Register = hn::Vec<Tag>>
std::array<Real, 4> horizontal_sums(Tag tag, Register a, Register b, Register c, Register d) {
#if HWY_TARGET == HWY_SCALAR  // without SIMD: one lane
    return {hn::GetLane(a), hn::GetLane(b), hn::GetLane(c), hn::GetLane(d)};
#else
    // Interleave and add: each block of four lanes is (a0 + a2, b0 + b2, a1 + a3, b1 + b3), and
    // likewise for c and d. Then interleave pairs of lanes, as if each pair were one double,
    // and add again: each block holds a partial sum of a, b, c and d.
    const hn::RepartitionToWide<Tag> pairs;
    const auto ab = hn::BitCast(
        pairs, hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b)));
    const auto cd = hn::BitCast(
        pairs, hn::Add(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d)));
    const Register abcd = hn::Add(hn::BitCast(tag, hn::InterleaveLower(pairs, ab, cd)),
                                  hn::BitCast(tag, hn::InterleaveUpper(pairs, ab, cd)));

    // Add up the blocks.
    std::array<Real, hn::MaxLanes(tag)> blocks;
    hn::StoreU(abcd, tag, blocks.data());
    auto sum = hn::LoadU(four_floats, blocks.data());
    for (std::size_t i = 4; i < hn::Lanes(tag); i += 4)
        sum = hn::Add(sum, hn::LoadU(four_floats, &blocks[i]));
    std::array<Real, 4> sums;
    hn::StoreU(sum, four_floats, sums.data());
    return sums;
#endif
}

}  // namespace
}  // namespace llm
