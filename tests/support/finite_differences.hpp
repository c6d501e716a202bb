// What the finite-difference tests of the chapters share. They are compiled with the lessons in
// double, because in float the difference of two nearly equal losses is mostly rounding.
#pragma once

#include <cmath>

#include <doctest/doctest.h>

#include "chapters/09_full_model/parameters.hpp"

namespace llm::finite_differences {

static_assert(sizeof(Real) == 8);

inline constexpr std::size_t B = 2, T = 3, N = B * T, C = 12, F = 5, H = 6, Hkv = 2, D = 4,
                             V = 7;

// A loss that weights each element of an output differently, so that no two can be confused.
// Its weights are the upstream gradient.
template <std::size_t K>
struct Loss {
    xt::xtensor<Real, K> weights;

    explicit Loss(const std::array<std::size_t, K>& shape) : weights(shape) {
        Generator generator(99);
        for (Real& weight : weights) weight = generator.next_normal();
    }
    double operator()(const xt::xtensor<Real, K>& output) const {
        REQUIRE(output.shape() == weights.shape());
        double sum = 0;
        for (std::size_t i = 0; i < output.size(); ++i)
            sum += output.data()[i] * weights.data()[i];
        return sum;
    }
};

// Compares a gradient, element by element, with central differences of the loss.
inline void check_gradient(const std::string& name, std::span<Real> values,
                           std::span<const Real> gradient,
                           const std::function<double()>& loss) {
    REQUIRE(values.size() == gradient.size());
    REQUIRE(!values.empty());
    double largest = 0;
    for (const Real g : gradient) largest = std::max(largest, std::abs(g));
    CHECK_MESSAGE(largest > 1e-6, name, " has no gradient at all");
    for (std::size_t i = 0; i < values.size(); ++i) {
        const Real before = values[i];
        const Real step = 1e-5;
        values[i] = before + step;
        const double above = loss();
        values[i] = before - step;
        const double below = loss();
        values[i] = before;
        const double difference = (above - below) / (2 * step);
        if (std::abs(difference - gradient[i]) <= 1e-6 * std::max(1.0, std::abs(difference)))
            continue;
        FAIL_CHECK(name, ", element ", i, ": the gradient is ", gradient[i],
                   ", the central difference ", difference);
        return;
    }
}

template <std::size_t K>
std::span<Real> span_of(xt::xtensor<Real, K>& tensor) {
    return {tensor.data(), tensor.size()};
}

inline Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint32_t seed) {
    Generator generator(seed);
    return randn({rows, columns}, generator);
}
inline Tensor4 random_heads(std::size_t heads, std::uint32_t seed) {
    Generator generator(seed);
    return randn({B, heads, T, D}, generator);
}

inline Vector random_vector(std::size_t size, std::uint32_t seed) {
    Generator generator(seed);
    return randn({size}, generator);
}

template <std::size_t K>
std::span<const Real> span_of(const xt::xtensor<Real, K>& tensor) {
    return {tensor.data(), tensor.size()};
}

inline Tensor3 random_states(std::size_t width, std::uint32_t seed) {
    Generator generator(seed);
    return randn({B, T, width}, generator);
}

// A part of a model with all its parameters 0, for its gradients.
template <class Part>
Part zeros_of(const Part& part) {
    Part zeros = part;
    ParameterList list;
    add_parameters(list, "", zeros);
    for (const Parameter& parameter : list)
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
    return zeros;
}

// The parameters of a part, sampled from a normal distribution.
template <class Part>
void randomize(Part& part, std::uint32_t seed) {
    Generator generator(seed);
    ParameterList list;
    add_parameters(list, "", part);
    for (const Parameter& parameter : list)
        for (Real& value : parameter.values) value = Real(0.5) * generator.next_normal();
}

// Checks the gradient of every parameter of a part.
template <class Part>
void check_parameters(Part& part, Part& gradient, const std::function<double()>& loss) {
    ParameterList parameters, gradients;
    add_parameters(parameters, "", part);
    add_parameters(gradients, "", gradient);
    REQUIRE(parameters.size() == gradients.size());
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values, loss);
}

// A model of these sizes, with two layers and a tied head.
inline Config small_config() {
    Config config;
    config.hidden_size = C;
    config.intermediate_size = F;
    config.num_hidden_layers = 2;
    config.num_attention_heads = H;
    config.num_key_value_heads = Hkv;
    config.head_dim = D;
    config.vocab_size = V;
    config.max_position_embeddings = 9;
    config.qk_norm = QKNormType::none;
    return config;
}

// A layer with grouped queries, biases and RoPE.
inline AttentionLayer attention_layer(QKNormType qk_norm) {
    Config config = small_config();
    config.attention_bias = AttentionBias::qkvo;
    config.qk_norm = qk_norm;
    Generator generator(1);
    AttentionLayer layer = make_attention_layer(config, generator);
    randomize(layer, 11);
    return layer;
}

inline GatedMlp gated_mlp(const Activation& activation) {
    GatedMlp mlp{{random_matrix(F, C, 1), random_vector(F, 6)},
                 {random_matrix(F, C, 2), random_vector(F, 7)},
                 {random_matrix(C, F, 4), random_vector(C, 8)},
                 activation};
    return mlp;
}

inline RMSNorm random_norm(std::uint32_t seed) {
    return {random_vector(C, seed), Real(1e-5), random_vector(C, seed + 1)};
}

}  // namespace llm::finite_differences
