#include "chapters/15_fast/matmul.hpp"

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

void check_shapes(const Matrix& inputs, const Matrix& weight) {
    require(inputs.shape(1) == weight.shape(1),
            "matmul: inputs of {} do not fit a weight of {}", inputs.shape(), weight.shape());
}

// A linear layer without bias, and any linear layer of chapter 02, computed with this matmul.
Tensor3 linear(const Matrix& weight, const Tensor3& inputs, Matmul matmul) {
    const auto [batch_size, seq_len, width] = dims(inputs);
    Matrix outputs = matmul(reshape(inputs, {batch_size * seq_len, width}), weight);
    return reshape(std::move(outputs), {batch_size, seq_len, weight.shape(0)});
}
Tensor3 linear(const Linear& layer, const Tensor3& inputs, Matmul matmul) {
    Tensor3 outputs = linear(layer.weight, inputs, matmul);
    if (!layer.bias) return outputs;
    return std::move(outputs) + reshape(*layer.bias, {1, 1, layer.bias->size()});
}

// A block of chapter 08 whose linear layers are computed with this matmul.
struct BlockWithMatmul {
    const PreNormBlock* block;
    Matmul matmul;

    Tensor3 attention(const Tensor3& normalized, const AttentionInputs& inputs) const {
        const AttentionLayer& layer = block->self_attn;
        const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
        const auto project = [&](const Linear& projection, std::size_t num_heads) {
            return split_heads(linear(projection, normalized, matmul), num_heads);
        };
        const QueriesKeysValues projected{project(q_proj, layer.num_attention_heads),
                                          project(k_proj, layer.num_key_value_heads),
                                          project(v_proj, layer.num_key_value_heads)};
        const auto [queries, keys, values] =
            apply_qk_norm_and_rope(layer.qk_norm, projected, inputs);
        const AttentionOutput result =
            grouped_query_attention(queries, keys, values, inputs.attention_mask);
        return linear(o_proj, merge_heads(result.context), matmul);
    }
    Tensor3 mlp(const Tensor3& normalized) const {
        const auto& [gate_proj, up_proj, down_proj, activation] = block->mlp;
        const Tensor3 gate = activate(activation, linear(gate_proj, normalized, matmul));
        return linear(down_proj, gate * linear(up_proj, normalized, matmul), matmul);
    }
    BlockOutput operator()(const Tensor3& hidden_states, const AttentionInputs& inputs,
                           LayerCache*) const {
        const Tensor3 after_attention =
            hidden_states + attention(block->attention_norm(hidden_states), inputs);
        return {after_attention + mlp(block->ffn_norm(after_attention)), {}};
    }
};

}  // namespace

// In the innermost loop, j advances from row to row of the weight: a stride of in elements.
Matrix matmul_ikj(const Matrix& inputs, const Matrix& weight) {
    check_shapes(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t i = 0; i < inputs.shape(0); ++i)
        for (std::size_t k = 0; k < inputs.shape(1); ++k)
            for (std::size_t j = 0; j < weight.shape(0); ++j)
                outputs(i, j) += inputs(i, k) * weight(j, k);
    return outputs;
}

// In the innermost loop, k advances along a row of the weight, which is contiguous in memory.
Matrix matmul_ijk(const Matrix& inputs, const Matrix& weight) {
    check_shapes(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t i = 0; i < inputs.shape(0); ++i)
        for (std::size_t j = 0; j < weight.shape(0); ++j) {
            Real sum = 0;
            for (std::size_t k = 0; k < inputs.shape(1); ++k)
                sum += inputs(i, k) * weight(j, k);
            outputs(i, j) = sum;
        }
    return outputs;
}

Matrix matmul_expression(const Matrix& inputs, const Matrix& weight) {
    check_shapes(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t i = 0; i < inputs.shape(0); ++i) {
        // xtensor's own operator* broadcasts the input over the rows. (Ours checks the shapes.)
        const Vector input = xt::view(inputs, i);                      // (in)
        const Vector sums = xt::sum(xt::operator*(weight, input), 1);  // (out)
        xt::view(outputs, i) = sums;
    }
    return outputs;
}

Matrix matmul_simd(const Matrix& inputs, const Matrix& weight) {
    check_shapes(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t i = 0; i < inputs.shape(0); ++i)
        for (std::size_t j = 0; j < weight.shape(0); ++j)
            outputs(i, j) = dot(view_of(inputs)[i], view_of(weight)[j]);
    return outputs;
}

Matrix matmul_blas(const Matrix& inputs, const Matrix& weight) {
    check_shapes(inputs, weight);
    return matmul_transposed(inputs, weight);
}

Tensor3 forward_with(Matmul matmul, const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const Tensor3 embeddings = model.embed(input_ids);  // (B, T, C)
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);

    // Run chapter 09's loop over the layers with these layers.
    std::vector<BlockWithMatmul> layers;
    for (const PreNormBlock& block : model.layers) layers.push_back({&block, matmul});
    const Tensor3 last = run_layers(layers, embeddings, inputs).last_hidden_state;

    return linear(model.head(), model.norm(last), matmul);  // (B, T, V)
}

}  // namespace llm
