#include "chapters/15_fast/fast_model.hpp"

#include <stdexcept>

namespace llm {
namespace {

// Stacks the rows of linear layers that read the same input. If one has a bias, the others get
// a bias of zeros.
QuantizedLinear fuse(std::initializer_list<const Linear*> linears, DType dtype) {
    std::size_t out_features = 0;
    for (const Linear* linear : linears) out_features += linear->weight.shape(0);
    Matrix stacked = xt::zeros<Real>({out_features, (*linears.begin())->weight.shape(1)});
    std::vector<Real> bias(out_features);
    bool has_bias = false;
    std::size_t row = 0;
    for (const Linear* linear : linears) {
        const auto [count, width] = dims(linear->weight);
        require(width == stacked.shape(1),
                "fast model: weights of {} and {} do not read the same input",
                linear->weight.shape(), stacked.shape());
        xt::view(stacked, xt::range(row, row + count)) = linear->weight;
        if (linear->bias) {
            has_bias = true;
            std::ranges::copy(*linear->bias, &bias[row]);
        }
        row += count;
    }
    if (!has_bias) bias.clear();
    return {quantize(stacked, dtype), bias};
}

// The kernels support only RMSNorm without bias and SwiGLU, and do not check shapes.
void check_supported(const Model& model) {
    bool supported = !model.norm.bias;
    for (const PreNormBlock& block : model.layers) {
        supported = supported && !block.attention_norm.bias && !block.ffn_norm.bias &&
                    block.mlp.activation.function == silu;
        const auto* norm = std::get_if<QKNormWithWeights>(&block.self_attn.qk_norm);
        if (!norm) continue;
        for (const Vector& weight : {norm->q_weight, norm->k_weight})
            require(weight.size() == model.config.head_dim,
                    "fast model: norm weights of {} do not fit heads of {}", weight.shape(),
                    model.config.head_dim);
    }
    if (!supported)
        throw std::invalid_argument("fast model: only RMSNorm without bias and SwiGLU");
}

}  // namespace

FastModel make_fast_model(const Model& model, DType dtype) {
    check_supported(model);
    FastModel fast{model.config, quantize(model.embed_tokens, dtype), {}, model.norm, {}};
    if (model.lm_head) fast.lm_head = quantize(*model.lm_head, dtype);
    for (const PreNormBlock& block : model.layers) {
        const auto& [q_proj, k_proj, v_proj, o_proj] = block.self_attn.projections;
        const auto& [gate_proj, up_proj, down_proj, activation] = block.mlp;
        fast.layers.push_back({block.attention_norm, block.ffn_norm,
                               fuse({&q_proj, &k_proj, &v_proj}, dtype), fuse({&o_proj}, dtype),
                               fuse({&gate_proj, &up_proj}, dtype), fuse({&down_proj}, dtype),
                               block.self_attn.qk_norm});
    }
    return fast;
}

std::uint64_t FastModel::weight_bytes() const {
    std::uint64_t bytes = head().nbytes();
    for (const FastLayer& layer : layers)
        for (const QuantizedLinear* linear :
             {&layer.qkv_proj, &layer.o_proj, &layer.gate_up_proj, &layer.down_proj})
            bytes += linear->weight.nbytes();
    return bytes;
}

}  // namespace llm
