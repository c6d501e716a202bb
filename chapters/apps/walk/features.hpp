// What single features of an MLP add to a prediction.
#pragma once

#include <string>
#include <vector>

#include "chapters/apps/walk/pass.hpp"

namespace llm::walk {

// A feature of a layer's MLP, for the last token.
struct MlpFeature {
    std::size_t layer, index;
    Real gate, up, product;
    Vector added;  // (C): what it adds to the residual stream, its product times its column
};

// The features of a layer with the largest products, in absolute value.
std::vector<MlpFeature> largest_features(const Walk& walk, const Pass& pass, std::size_t layer,
                                         std::size_t count);

// The probabilities of the next token, (V), if the feature adds nothing.
Vector probabilities_without(const Walk& walk, const Pass& pass, const MlpFeature& feature);

}  // namespace llm::walk
