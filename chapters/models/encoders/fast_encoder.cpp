#include "chapters/models/encoders/fast_encoder.hpp"

#include "chapters/16_quantization/quantizers.hpp"
#include "chapters/models/encoders/kernels/packed_products.hpp"

namespace llm::models {
namespace {

NormOrIdentity copy_norm(const LayerNorm& norm) { return {norm}; }
NormOrIdentity copy_norm(const NormOrIdentity& norm) { return norm; }

template <class Block>
FastEncoderLayer make_fast_layer(const Block& block, const ChooseKernels& kernels,
                                 WeightMemory& memory) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = block.self_attn.layer.projections;
    const auto fuse = [&](std::initializer_list<const Linear*> linears) {
        return fuse_linears(linears, kernels, memory);
    };
    FastEncoderLayer layer;
    layer.attention_norm = copy_norm(block.attention_norm);
    layer.ffn_norm = copy_norm(block.ffn_norm);
    layer.qkv_proj = fuse({&q_proj, &k_proj, &v_proj});
    layer.o_proj = fuse({&o_proj});
    layer.has_gate = std::same_as<decltype(block.mlp), GatedMlp>;
    if constexpr (std::same_as<decltype(block.mlp), GatedMlp>)
        layer.gate_up_proj = fuse({&block.mlp.gate_proj, &block.mlp.up_proj});
    else
        layer.gate_up_proj = fuse({&block.mlp.up_proj});
    layer.down_proj = fuse({&block.mlp.down_proj});
    layer.activation = block.mlp.activation;
    layer.has_window = block.self_attn.has_window;
    return layer;
}

template <class Block>
FastEncoder make_fast(const EncoderFamilyConfig& config, const Encoder<Block>& encoder,
                      const ChooseKernels& kernels) {
    const auto& [words, positions, token_types, norm] = encoder.embeddings;
    FastEncoder fast{
        config,
        std::same_as<Block, BertBlock> ? NormPlacement::post_norm : NormPlacement::pre_norm,
        quantize(words, kernels(words.shape(1))),
        positions,
        token_types,
        norm,
        {},
        encoder.final_norm};
    WeightMemory memory;
    for (const Block& block : encoder.layers)
        fast.layers.push_back(make_fast_layer(block, kernels, memory));
    return fast;
}

}  // namespace

FastEncoder make_fast_encoder(const AnyEncoder& encoder, DType dtype, Activations activations) {
    const auto kernels = [&](std::size_t in_features) -> const WeightKernels& {
        const DType stored = stored_dtype(dtype, in_features);
        return stored == DType::float32 ? packed_float32_kernels()
                                        : quantization_kernels(stored, activations);
    };
    return std::visit(
        [&](const auto& model) { return make_fast(model.config, model.encoder, kernels); },
        encoder);
}

Matrix embed_texts(const FastEncoder& encoder, Pooling pooling,
                   const std::vector<std::vector<Id>>& texts) {
    // Compute a few thousand tokens at a time: activations take more memory than vectors.
    constexpr std::size_t max_tokens = 2048;
    Matrix vectors = xt::zeros<Real>({texts.size(), encoder.config.hidden_size});
    for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
        for (std::size_t count = 0; end < texts.size() && count < max_tokens; ++end)
            count += texts[end].size();
        const std::vector<std::vector<Id>> some(texts.begin() + std::ptrdiff_t(begin),
                                                texts.begin() + std::ptrdiff_t(end));
        const BatchEncoding batch = pad(some, encoder.config.pad_token_id);
        xt::view(vectors, xt::range(begin, end)) =
            l2_normalize(pool(pooling, encoder(batch), batch.padding_mask));
    }
    return vectors;
}

}  // namespace llm::models
