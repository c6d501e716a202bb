#include "chapters/11_generation/inspection.hpp"

namespace llm {

Inside look_inside(const Model& model, const std::vector<Id>& ids) {
    KvCache cache = make_cache(model, ids.size());
    const Placement placement = placement_behind(cache, 1, ids.size());
    Inside inside{{model.embed(one_sequence(ids))}, {}};
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const PreNormBlock& block = model.layers[n];
        const Tensor3 stream = inside.stream.back();
        inside.attention.push_back(
            attend(block.self_attn, block.attention_norm(stream), placement, cache.layers[n]));
        inside.stream.push_back(finish_block(block, stream, inside.attention.back()));
    }
    return inside;
}

Matrix weights_of_query(const Attention& attention, std::size_t t) {
    const std::size_t num_heads = attention.weights.shape(1);
    Matrix weights = xt::zeros<Real>({num_heads, t + 1});
    for (std::size_t h = 0; h < num_heads; ++h)
        for (std::size_t s = 0; s <= t; ++s) weights(h, s) = attention.weights(0, h, t, s);
    return weights;
}

Vector logit_lens(const Model& model, const Tensor3& stream, std::size_t t) {
    const Tensor3 row = xt::view(stream, xt::all(), xt::range(t, t + 1));  // (1, 1, C)
    const Tensor3 logits = model.logits(row);                              // (1, 1, V)
    return probabilities_of(reshape(logits, {logits.size()}));
}

}  // namespace llm
