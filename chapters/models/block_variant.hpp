// A layer of one of several block types, for models whose blocks differ: published models, and
// the ablations.
#pragma once

#include <tuple>
#include <variant>

#include "chapters/12_gradients/block_backward.hpp"

namespace llm {

// All blocks have the same type of attention and of activations.
template <class... Blocks>
struct BlockVariant : std::variant<Blocks...> {
    using std::variant<Blocks...>::variant;
    using FirstBlock = std::tuple_element_t<0, std::tuple<Blocks...>>;
    using AttentionType = decltype(FirstBlock::self_attn);

    const AttentionType& self_attn() const {
        return std::visit(
            [](const auto& block) -> const AttentionType& { return block.self_attn; }, *this);
    }
    BlockOutput operator()(const Tensor3& hidden_states,  // (B, T, C)
                           const typename AttentionType::Inputs& inputs,
                           typename AttentionType::Cache* cache = nullptr) const {
        return std::visit(
            [&](const auto& block) { return block(hidden_states, inputs, cache); }, *this);
    }
};

template <class... Blocks>
auto make_layer_cache(const BlockVariant<Blocks...>& layer) {
    return layer.self_attn().make_cache();
}

// Forward and backward pass (chapter 12), and the names of the parameters.
template <class... Blocks, class Inputs>
auto block_forward(const BlockVariant<Blocks...>& layer,
                   const Tensor3& hidden_states,  // (B, T, C)
                   const Inputs& inputs, Generator* dropout_generator = nullptr) {
    return std::visit(
        [&](const auto& block) {
            return block_forward(block, hidden_states, inputs, dropout_generator);
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
            return block_backward(block, inputs, saved, output_gradient,
                                  std::get<AnyBlock>(gradient));
        },
        layer);
}
template <class... Blocks>
void add_parameters(ParameterList& list, const std::string& name,
                    BlockVariant<Blocks...>& layer) {
    std::visit([&](auto& block) { add_parameters(list, name, block); }, layer);
}

}  // namespace llm
