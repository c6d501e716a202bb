#include "chapters/experiments/hybrid_decoder.hpp"

namespace llm {

HybridDecoder make_hybrid_decoder(const Config& given, const std::vector<HybridLayer>& layers,
                                  Generator& generator) {
    Config config = validate_model(given);
    require(config.num_hidden_layers == layers.size(),
            "hybrid decoder: a configuration of {} layers does not match {} layers",
            config.num_hidden_layers, layers.size());
    config.tie_word_embeddings = true;
    const std::size_t H = config.num_attention_heads, D = config.head_dim;
    const LinearSizes sizes{config.hidden_size, H, H, D, D};
    const RMSNorm norm = make_rms_norm(config.hidden_size, config.rms_norm_eps);
    HybridDecoder model{
        config, randn({config.vocab_size, config.hidden_size}, generator), {}, norm, {}};
    for (const HybridLayer& layer : layers) {
        const GatedMlp mlp = make_gated_mlp(config.hidden_size, config.intermediate_size, false,
                                            SiLU, generator);
        if (layer)
            model.layers.push_back(LinearBlock{
                make_linear_attention(sizes, *layer, config.rms_norm_eps, generator), mlp, norm,
                norm});
        else
            model.layers.push_back(
                PatternBlock{make_pattern_attention(make_attention_layer(config, generator), D,
                                                    FullAttention{}),
                             mlp, norm, norm});
    }
    return model;
}

}  // namespace llm
