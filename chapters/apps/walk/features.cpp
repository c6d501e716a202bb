#include "chapters/apps/walk/features.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/11_generation/inspection.hpp"
#include "common/tensors/argsort.hpp"

namespace llm::walk {

std::vector<MlpFeature> largest_features(const Walk& walk, const Pass& pass, std::size_t layer,
                                         std::size_t count) {
    const PreNormBlock& block = walk.model.layers[layer];
    const GatedMlp& mlp = block.mlp;
    const std::size_t last = pass.words.size() - 1;
    const Tensor3 mlp_input = block.ffn_norm(pass.between[layer]);
    const Tensor3 gate = mlp.gate_proj(mlp_input), up = mlp.up_proj(mlp_input);
    const Tensor3 products = activate(mlp.activation, gate) * up;
    const Vector magnitudes = xt::abs(xt::view(products, 0, last));
    std::vector<MlpFeature> features;
    for (const std::size_t f : argsort_descending(magnitudes, count)) {
        const Real product = products(0, last, f);
        const Vector column = xt::view(mlp.down_proj.weight, xt::all(), f);
        features.push_back(
            {layer, f, gate(0, last, f), up(0, last, f), product, Vector(product * column)});
    }
    return features;
}

Vector probabilities_without(const Walk& walk, const Pass& pass, const MlpFeature& feature) {
    Tensor3 stream = pass.streams[feature.layer + 1];
    for (std::size_t c = 0; c < stream.shape(2); ++c)
        stream(0, stream.shape(1) - 1, c) -= feature.added(c);
    for (std::size_t n = feature.layer + 1; n < walk.model.layers.size(); ++n)
        stream = walk.model.layers[n](stream, pass.inputs).hidden_states;
    return logit_lens(walk.model, stream, stream.shape(1) - 1);
}

}  // namespace llm::walk
