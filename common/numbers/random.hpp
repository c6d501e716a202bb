// PyTorch's random numbers: after the same seed, the same calls give the same tensors as
// torch.manual_seed, torch.randn, torch.rand and torch.randint on a CPU.
#pragma once

#include <optional>
#include <random>

#include "common/tensors/tensor.hpp"

namespace llm {

class Generator {
 public:
    // torch.manual_seed(seed), 0 <= seed < 2^32.
    explicit Generator(std::uint32_t seed) : engine_(seed) {}

    std::uint32_t next_32_bits() { return engine_(); }
    float next_uniform();  // in [0, 1)
    float next_normal();   // mean 0, standard deviation 1: torch's way for under 16 numbers
    void fill_normal(std::span<Real> numbers);

 private:
    // std::mt19937, whose numbers may be kept in 64 bits, with 32: the same, but faster.
    std::mersenne_twister_engine<std::uint32_t, 32, 624, 397, 31, 0x9908b0df, 11, 0xffffffff, 7,
                                 0x9d2c5680, 15, 0xefc60000, 18, 1812433253>
        engine_;
    std::optional<double> spare_normal_;  // next_normal makes two at a time and keeps one
};

// torch.rand, scaled as nn.init.uniform_ does: every number in [low, high).
template <std::size_t N>
xt::xtensor<Real, N> uniform(const std::size_t (&shape)[N], Real low, Real high,
                             Generator& generator) {
    xt::xtensor<Real, N> result(std::to_array(shape));
    for (Real& number : result) number = generator.next_uniform() * (high - low) + low;
    return result;
}

// torch.rand: every number in [0, 1).
template <std::size_t N>
xt::xtensor<Real, N> rand(const std::size_t (&shape)[N], Generator& generator) {
    return uniform(shape, 0, 1, generator);
}

// torch.randn: mean 0, standard deviation 1. This is also how nn.Embedding starts.
template <std::size_t N>
xt::xtensor<Real, N> randn(const std::size_t (&shape)[N], Generator& generator) {
    xt::xtensor<Real, N> result(std::to_array(shape));
    generator.fill_normal({result.data(), result.size()});
    return result;
}

// torch.randint: whole numbers in [low, high). Throws ShapeError unless low < high and the
// range has less than 2^32 numbers.
template <std::size_t N>
xt::xtensor<Id, N> randint(Id low, Id high, const std::size_t (&shape)[N],
                           Generator& generator) {
    require(low < high, "randint: no numbers in [{}, {})", low, high);
    const std::uint64_t count =
        static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    require(count >> 32 == 0, "randint: more than 32 bits of numbers in [{}, {})", low, high);
    xt::xtensor<Id, N> result(std::to_array(shape));
    for (Id& number : result) number = low + static_cast<Id>(generator.next_32_bits() % count);
    return result;
}

}  // namespace llm
