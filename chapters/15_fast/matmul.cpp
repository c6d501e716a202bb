#include "chapters/15_fast/matmul.hpp"

#include "chapters/15_fast/simd.hpp"
#include "common/system/parallel.hpp"
#include "common/tensors/matmul.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

void check_fit(const Matrix& inputs, const Matrix& weight) {
    require(inputs.shape(1) == weight.shape(1),
            "product: inputs of {} do not fit a weight of {}", inputs.shape(), weight.shape());
}

// A linear layer of chapter 02, by the given product.
Tensor3 apply(const Linear& linear, const Tensor3& inputs, Product product) {
    const auto [batch_size, seq_len, width] = dims(inputs);
    Matrix outputs = product(reshape(inputs, {batch_size * seq_len, width}), linear.weight);
    if (linear.bias) outputs = outputs + reshape(*linear.bias, {1, linear.bias->size()});
    return reshape(outputs, {batch_size, seq_len, outputs.shape(1)});
}

}  // namespace

Matrix product_down_the_columns(const Matrix& inputs, const Matrix& weight) {
    check_fit(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t n = 0; n < inputs.shape(0); ++n)
        for (std::size_t i = 0; i < inputs.shape(1); ++i)
            for (std::size_t o = 0; o < weight.shape(0); ++o)
                outputs(n, o) += inputs(n, i) * weight(o, i);  // jumps from row to row
    return outputs;
}

Matrix product_along_the_rows(const Matrix& inputs, const Matrix& weight) {
    check_fit(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t n = 0; n < inputs.shape(0); ++n)
        for (std::size_t o = 0; o < weight.shape(0); ++o) {
            Real sum = 0;
            for (std::size_t i = 0; i < inputs.shape(1); ++i)
                sum += inputs(n, i) * weight(o, i);
            outputs(n, o) = sum;
        }
    return outputs;
}

Matrix product_by_expression(const Matrix& inputs, const Matrix& weight) {
    check_fit(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t n = 0; n < inputs.shape(0); ++n) {
        // xtensor's own *, which repeats the input for every row. (Ours refuses other shapes.)
        const Vector input = xt::view(inputs, n);                      // (in)
        const Vector sums = xt::sum(xt::operator*(weight, input), 1);  // (out)
        xt::view(outputs, n) = sums;
    }
    return outputs;
}

Matrix product_in_lanes(const Matrix& inputs, const Matrix& weight) {
    check_fit(inputs, weight);
    Matrix outputs = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (std::size_t n = 0; n < inputs.shape(0); ++n)
        for (std::size_t o = 0; o < weight.shape(0); ++o)
            outputs(n, o) = dot(rows_of(inputs)[n], rows_of(weight)[o]);
    return outputs;
}

Matrix product_by_blas(const Matrix& inputs, const Matrix& weight) {
    check_fit(inputs, weight);
    return xt::linalg::dot(inputs, xt::transpose(weight));
}

Tensor3 forward_with(Product product, const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const auto& [table, positions, mask] = model.placement(batch_size, seq_len);
    Tensor3 stream = model.embed(input_ids);  // (B, T, C)

    for (const PreNormBlock& block : model.layers) {
        const auto& [config, projections, q_norm, k_norm] = block.self_attn;
        const Tensor3 hidden_states = block.attention_norm(stream);
        const auto heads_of = [&](const Linear& projection, std::size_t num_heads) {
            return split_heads(apply(projection, hidden_states, product), num_heads);
        };
        const Tensor4 queries = heads_of(projections.q_proj, config.num_attention_heads);
        const Tensor4 keys = heads_of(projections.k_proj, config.num_key_value_heads);
        const Tensor4 values = heads_of(projections.v_proj, config.num_key_value_heads);
        const Attention attention = grouped_query_attention(
            block.self_attn.placed(queries, q_norm, table, positions),
            block.self_attn.placed(keys, k_norm, table, positions), values, mask);
        stream = stream + apply(projections.o_proj, merge_heads(attention.context), product);

        const Tensor3 normalized = block.ffn_norm(stream);
        const Tensor3 gate =
            activate(block.mlp.activation, apply(block.mlp.gate_proj, normalized, product));
        const Tensor3 up = apply(block.mlp.up_proj, normalized, product);
        stream = stream + apply(block.mlp.down_proj, gate * up, product);
    }
    const Linear head{model.lm_head ? *model.lm_head : model.embed_tokens, {}};
    return apply(head, model.norm(stream), product);  // (B, T, V)
}

double operations_of_prefill(const ModelConfig& config, std::size_t seq_len) {
    double operations = 0;
    for (std::size_t t = 0; t < seq_len; ++t)
        operations += static_cast<double>(operations_per_token(config, t));
    return operations;
}

std::size_t cache_bytes(const ModelConfig& given, std::size_t num_tokens) {
    const ModelConfig config = complete(given);
    return num_tokens * kv_cache_bytes_per_token(config.num_hidden_layers,
                                                 config.num_key_value_heads, config.head_dim,
                                                 sizeof(Real));
}

LimitWork::LimitWork()
    : factor_(xt::ones<Real>({size, size})),
      result_(xt::zeros<Real>({size, size})),
      memory_(num_pieces * piece_size, 1),
      found_(num_pieces) {}

void LimitWork::multiply(std::size_t first_row, std::size_t count) {
    multiply_rows(rows_of(factor_).rows(first_row, count), rows_of(factor_),
                  rows_of(result_).rows(first_row, count));
}

void LimitWork::multiply_on_one_core() {
    in_parallel(2, [&](std::size_t i) {  // of two, so that the product keeps to one core
        if (i == 0) multiply(0, size);
    });
}

void LimitWork::multiply_on_all_cores() {
    in_parallel(num_cores(), [&](std::size_t core) {
        const std::size_t begin = core * size / num_cores();
        multiply(begin, (core + 1) * size / num_cores() - begin);
    });
}

void LimitWork::multiply_together() { multiply(0, size); }

// Much more memory than caches hold, in pieces that the cores take in turns.
void LimitWork::read() {
    in_parallel(num_pieces, [&](std::size_t piece) {
        found_[piece] = largest({&memory_[piece * piece_size], piece_size});
    });
}

Limits measure_limits() {
    LimitWork work;
    const double one_core = fastest_seconds(4, [&] { work.multiply_on_one_core(); });
    const double all_cores = std::min(fastest_seconds(6, [&] { work.multiply_on_all_cores(); }),
                                      fastest_seconds(6, [&] { work.multiply_together(); }));
    const double reading = fastest_seconds(6, [&] { work.read(); });
    return {LimitWork::operations / one_core / 1e9, LimitWork::operations / all_cores / 1e9,
            LimitWork::bytes / reading / 1e9};
}

}  // namespace llm
