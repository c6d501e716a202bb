// PyTorch's random numbers: with the same seed, the same calls give the same tensors as
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
    float next_normal();   // N(0, 1), by PyTorch's algorithm for tensors under 16 elements
    void fill_normal(std::span<Real> values);  // N(0, 1), as torch.randn

    // The state as text, to go on later. set_state throws ValueError for any other text.
    // Source: torch.get_rng_state, torch.set_rng_state.
    std::string state() const;
    void set_state(const std::string& text);

 private:
    // std::mt19937 with a 32-bit word type, which is faster; the sequence is the same.
    std::mersenne_twister_engine<std::uint32_t, 32, 624, 397, 31, 0x9908b0df, 11, 0xffffffff, 7,
                                 0x9d2c5680, 15, 0xefc60000, 18, 1812433253>
        engine_;
    std::optional<double>
        spare_normal_;  // next_normal computes two values at a time and keeps one
};

// nn.init.uniform_: every element is uniform in [low, high).
template <std::size_t N>
xt::xtensor<Real, N> uniform(const std::size_t (&shape)[N], Real low, Real high,
                             Generator& generator) {
    xt::xtensor<Real, N> result(std::to_array(shape));
    for (Real& element : result) element = generator.next_uniform() * (high - low) + low;
    return result;
}

// torch.rand: every element is uniform in [0, 1).
template <std::size_t N>
xt::xtensor<Real, N> rand(const std::size_t (&shape)[N], Generator& generator) {
    return uniform(shape, 0, 1, generator);
}

// torch.randn: mean 0, standard deviation 1. nn.Embedding is initialized like this.
template <std::size_t N>
xt::xtensor<Real, N> randn(const std::size_t (&shape)[N], Generator& generator) {
    xt::xtensor<Real, N> result(std::to_array(shape));
    generator.fill_normal({result.data(), result.size()});
    return result;
}

// torch.randint: integers in [low, high). Throws ValueError unless low < high and the range has
// fewer than 2^32 values.
template <std::size_t N>
xt::xtensor<Id, N> randint(Id low, Id high, const std::size_t (&shape)[N],
                           Generator& generator) {
    require(low < high, "randint: the range [{}, {}) is empty", low, high);
    const std::uint64_t count =
        static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    require(count >> 32 == 0, "randint: [{}, {}) has more than 2^32 values", low, high);
    xt::xtensor<Id, N> result(std::to_array(shape));
    for (Id& id : result) id = low + static_cast<Id>(generator.next_32_bits() % count);
    return result;
}

}  // namespace llm
