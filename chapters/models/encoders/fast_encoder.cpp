#include "chapters/16_quantization/quantizers.hpp"
#include "chapters/models/encoders/fast_encoder_parts.hpp"
#include "chapters/models/encoders/kernels/packed_products.hpp"

namespace llm::models {
namespace {

template <class Block>
void fuse_layer(const Block& block, const ChooseKernels& kernels, WeightMemory& memory,
                FastEncoderLayer& layer) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = block.self_attn.layer.projections;
    const auto fuse = [&](std::initializer_list<const Linear*> linears) {
        return fuse_linears(linears, kernels, memory);
    };
    layer.qkv_proj = fuse({&q_proj, &k_proj, &v_proj});
    layer.o_proj = fuse({&o_proj});
    if constexpr (has_gate<Block>)
        layer.gate_up_proj = fuse({&block.mlp.gate_proj, &block.mlp.up_proj});
    else
        layer.gate_up_proj = fuse({&block.mlp.up_proj});
    layer.down_proj = fuse({&block.mlp.down_proj});
}

template <class Block>
FastEncoder make_fast(const EncoderFamilyConfig& config, const Encoder<Block>& encoder,
                      const ChooseKernels& kernels) {
    FastEncoder fast = copy_all_but_weights(config, encoder);
    const Matrix& words = encoder.embeddings.word_embeddings;
    fast.word_embeddings = quantize(words, kernels(words.shape(1)));
    WeightMemory memory;
    for (std::size_t n = 0; n < fast.layers.size(); ++n)
        fuse_layer(encoder.layers[n], kernels, memory, fast.layers[n]);
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
