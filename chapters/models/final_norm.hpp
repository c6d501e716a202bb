// The norm after the last block, for models of which some have RMSNorm and some LayerNorm.
#pragma once

#include <variant>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm::models {

// Post-norm blocks end with a norm, so post-norm models have no other (std::monostate).
struct FinalNorm : std::variant<std::monostate, RMSNorm, LayerNorm> {
    using variant::variant;

    Tensor3 operator()(const Tensor3& hidden_states) const {  // (B, T, C) -> (B, T, C)
        if (const auto* rms_norm = std::get_if<RMSNorm>(this))
            return (*rms_norm)(hidden_states);
        if (const auto* layer_norm = std::get_if<LayerNorm>(this))
            return (*layer_norm)(hidden_states);
        return hidden_states;
    }
};

inline Tensor3 norm_backward(const FinalNorm& norm,
                             const Tensor3& input,            // (B, T, C)
                             const Tensor3& output_gradient,  // (B, T, C)
                             FinalNorm& gradient) {           // -> (B, T, C)
    if (const auto* rms_norm = std::get_if<RMSNorm>(&norm))
        return norm_backward(*rms_norm, input, output_gradient, std::get<RMSNorm>(gradient));
    if (const auto* layer_norm = std::get_if<LayerNorm>(&norm))
        return norm_backward(*layer_norm, input, output_gradient,
                             std::get<LayerNorm>(gradient));
    return output_gradient;
}

inline void add_parameters(ParameterList& list, const std::string& name, FinalNorm& norm) {
    if (auto* rms_norm = std::get_if<RMSNorm>(&norm)) add_parameters(list, name, *rms_norm);
    if (auto* layer_norm = std::get_if<LayerNorm>(&norm))
        add_parameters(list, name, *layer_norm);
}

}  // namespace llm::models
