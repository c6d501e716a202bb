#include "chapters/15_fast/fast_model.hpp"

#include <stdexcept>

namespace llm {
namespace {

// The kernels support only RMSNorm without bias, SwiGLU, RoPE, and no scales or caps, and do
// not check shapes.
void check_supported(const Model& model) {
    bool supported = !model.norm.bias && model.embedding_scale == 1 &&
                     !model.final_logit_softcapping && model.logits_scaling == 1 &&
                     !model.embed_positions;
    for (const PreNormBlock& block : model.layers) {
        supported = supported && !block.attention_norm.bias && !block.ffn_norm.bias &&
                    block.mlp.activation.function == silu && block.residual_multiplier == 1;
        const auto* norm = std::get_if<QKNormWithWeights>(&block.self_attn.qk_norm);
        if (!norm) continue;
        for (const Vector& weight : {norm->q_weight, norm->k_weight})
            require(weight.size() == model.config.head_dim,
                    "fast model: norm weights of {} do not fit heads of {}", weight.shape(),
                    model.config.head_dim);
    }
    if (!supported)
        throw ValueError(
            "fast model: only RMSNorm without bias, SwiGLU, RoPE, and embeddings and logits "
            "without a scale or a cap");
}

}  // namespace

FastLinear fuse_linears(std::initializer_list<const Linear*> linears,
                        const ChooseKernels& kernels, WeightMemory& memory) {
    std::vector<WeightMatrix> weights;
    std::vector<Real> bias;
    bool has_bias = false;
    for (const Linear* linear : linears) {
        weights.push_back(quantize(linear->weight, kernels(linear->weight.shape(1))));
        const std::size_t begin = bias.size();
        bias.resize(begin + linear->weight.shape(0));
        if (!linear->bias) continue;
        has_bias = true;
        std::ranges::copy(*linear->bias, &bias[begin]);
    }
    if (!has_bias) bias.clear();
    return {memory.fuse(weights), bias};
}

FastModel make_fast_model(const Model& model, DType dtype) {
    const WeightKernels& kernels = kernels_of(dtype);
    return make_fast_model(model, [&](std::size_t) -> const WeightKernels& { return kernels; });
}

FastModel make_fast_model(const Model& model, const ChooseKernels& kernels) {
    check_supported(model);
    const WeightKernels& of_hidden_size = kernels(model.config.hidden_size);
    FastModel fast{
        model.config, quantize(model.embed_tokens, of_hidden_size), {}, model.norm, {}};
    if (model.lm_head) fast.lm_head = quantize(*model.lm_head, of_hidden_size);
    fast.head() = repack(fast.head());
    WeightMemory memory;
    for (const PreNormBlock& block : model.layers) {
        const auto& [q_proj, k_proj, v_proj, o_proj] = block.self_attn.projections;
        const auto& [gate_proj, up_proj, down_proj, activation] = block.mlp;
        fast.layers.push_back({block.attention_norm, block.ffn_norm,
                               fuse_linears({&q_proj, &k_proj, &v_proj}, kernels, memory),
                               fuse_linears({&o_proj}, kernels, memory),
                               fuse_linears({&gate_proj, &up_proj}, kernels, memory),
                               fuse_linears({&down_proj}, kernels, memory),
                               block.self_attn.qk_norm});
    }
    return fast;
}

std::uint64_t FastModel::weight_bytes() const {
    std::uint64_t bytes = head().nbytes();
    for (const FastLayer& layer : layers)
        for (const FastLinear* linear :
             {&layer.qkv_proj, &layer.o_proj, &layer.gate_up_proj, &layer.down_proj})
            for (const WeightMatrix& weight : linear->weights) bytes += weight.nbytes();
    return bytes;
}

}  // namespace llm
