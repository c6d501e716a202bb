// A layer of one of several block types, for models whose blocks differ: published models, and
// the ablations.
#pragma once

#include <concepts>
#include <tuple>
#include <variant>

#include "chapters/12_gradients/block_backward.hpp"

namespace llm::models {

// A variant of these types, each of them once.
template <class Unique, class... Types>
struct UniqueVariantOf {
    using type = Unique;
};
template <class... Unique, class First, class... Rest>
struct UniqueVariantOf<std::variant<Unique...>, First, Rest...>
    : UniqueVariantOf<
          std::conditional_t<(std::same_as<First, Unique> || ...), std::variant<Unique...>,
                             std::variant<Unique..., First>>,
          Rest...> {};
template <class... Types>
using UniqueVariant = typename UniqueVariantOf<std::variant<>, Types...>::type;

template <class Block>
using CacheOf = typename Block::AttentionType::Cache;

// The cache of a layer: that of its attention.
template <class... Blocks>
struct CacheVariant : UniqueVariant<CacheOf<Blocks>...> {
    using Base = UniqueVariant<CacheOf<Blocks>...>;
    using Base::Base;
    bool crop(std::size_t count) {
        return std::visit([&](auto& cache) { return cache.crop(count); }, *this);
    }
};

// All attention types have the same inputs. Their caches and activations may differ.
template <class... Blocks>
struct BlockVariant : std::variant<Blocks...> {
    using std::variant<Blocks...>::variant;
    using FirstBlock = std::tuple_element_t<0, std::tuple<Blocks...>>;
    struct AttentionType {
        using Inputs = typename FirstBlock::AttentionType::Inputs;
        using Cache = CacheVariant<Blocks...>;
    };
    using Activations = UniqueVariant<ActivationsOf<Blocks>...>;

    BlockOutput operator()(const Tensor3& hidden_states,  // (B, T, C)
                           const typename AttentionType::Inputs& inputs,
                           typename AttentionType::Cache* cache = nullptr) const {
        return std::visit(
            [&]<class Block>(const Block& block) {
                return block(hidden_states, inputs,
                             cache ? &std::get<CacheOf<Block>>(*cache) : nullptr);
            },
            *this);
    }
};

template <class... Blocks>
CacheVariant<Blocks...> make_layer_cache(const BlockVariant<Blocks...>& layer) {
    return std::visit(
        [](const auto& block) -> CacheVariant<Blocks...> {
            return block.self_attn.make_cache();
        },
        layer);
}

// Forward and backward pass (chapter 12), and the names of the parameters.
template <class... Blocks, class Inputs>
auto block_forward(const BlockVariant<Blocks...>& layer,
                   const Tensor3& hidden_states,  // (B, T, C)
                   const Inputs& inputs, Generator* dropout_generator = nullptr) {
    using Pass = ForwardPass<typename BlockVariant<Blocks...>::Activations>;
    return std::visit(
        [&](const auto& block) -> Pass {
            auto [output, activations] =
                block_forward(block, hidden_states, inputs, dropout_generator);
            return {std::move(output), std::move(activations)};
        },
        layer);
}
template <class... Blocks, class Inputs, class Activations>
Tensor3 block_backward(const BlockVariant<Blocks...>& layer, const Inputs& inputs,
                       const Activations& saved,
                       const Tensor3& output_gradient,  // (B, T, C)
                       BlockVariant<Blocks...>& gradient) {
    return std::visit(
        [&]<class AnyBlock>(const AnyBlock& block) {
            return block_backward(block, inputs, std::get<ActivationsOf<AnyBlock>>(saved),
                                  output_gradient, std::get<AnyBlock>(gradient));
        },
        layer);
}
template <class... Blocks>
void add_parameters(ParameterList& list, const std::string& name,
                    BlockVariant<Blocks...>& layer) {
    std::visit([&](auto& block) { add_parameters(list, name, block); }, layer);
}

}  // namespace llm::models
