#include "chapters/28_model_parallel/context_parallel.hpp"

#include <cmath>
#include <utility>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/tensors/elementwise.hpp"
#include "common/tensors/head_view.hpp"

namespace llm {
namespace {

// The keys and values of one rank's tokens, on their way around the ring. In the backward pass,
// their gradients travel in the same way. S is the number of that rank's tokens.
struct KeyValueBlock {
    std::size_t owner;
    Tensor4 keys, values;  // (B, Hkv, S, D)
};

// Sends a tensor to the next rank, and replaces it by the one that the previous rank sends.
void send_to_next_rank(Communicator& ranks, Tensor4& states,  // (B, Hkv, S, D)
                       std::size_t received_len) {            // S of the other one
    auto shape = states.shape();
    shape[2] = received_len;
    Tensor4 received(shape);
    const std::size_t n = ranks.size(), rank = ranks.rank();
    ranks.send_receive<Real>({states.data(), states.size()}, (rank + 1) % n,
                             {received.data(), received.size()}, (rank + n - 1) % n);
    states = std::move(received);
}
void send_to_next_rank(Communicator& ranks, const ZigzagChunks& chunks, KeyValueBlock& block) {
    block.owner = (block.owner + ranks.size() - 1) % ranks.size();
    const std::size_t received_len = chunks.positions(block.owner).size();
    send_to_next_rank(ranks, block.keys, received_len);
    send_to_next_rank(ranks, block.values, received_len);
}

// Of a rank's tokens, those of its first or second chunk (i = 0 or 1).
Part rows_of_chunk(const ZigzagChunks& chunks, std::size_t rank, std::size_t i) {
    const auto [first, second] = chunks.of_rank(rank);
    const std::size_t first_size = chunks.chunk(first).size;
    return i == 0 ? Part{0, first_size} : Part{first_size, chunks.chunk(second).size};
}

// One head's queries in a chunk of this rank, and the keys of a chunk that they see.
struct ChunkPair {
    std::size_t b, h, kv_head;
    Part queries, keys;  // rows of this rank's queries, and of a block's keys and values
    bool is_causal;      // the same chunk: query t sees keys 0 to t; otherwise all

    auto query_rows(auto& states) const {  // (B, H, T/n, D) -> (queries.size, D)
        return head_view(states, b, h).rows(queries.begin, queries.size);
    }
    auto query_numbers(auto& numbers) const {  // (B, H, T/n) -> (queries.size)
        return std::span(&numbers(b, h, queries.begin), queries.size);
    }
    auto key_rows(auto& states) const {  // (B, Hkv, S, D) -> (keys.size, D)
        return head_view(states, b, kv_head).rows(keys.begin, keys.size);
    }
};
// All pairs but those that a causal mask hides.
std::vector<ChunkPair> visible_pairs(const ZigzagChunks& chunks, std::size_t rank,
                                     const Tensor4& queries,  // (B, H, T/n, D)
                                     const KeyValueBlock& block) {
    const std::size_t num_key_value_groups = queries.shape(1) / block.keys.shape(1);
    std::vector<ChunkPair> pairs;
    for (std::size_t q = 0; q < 2; ++q)
        for (std::size_t k = 0; k < 2; ++k) {
            const std::size_t query_chunk = chunks.of_rank(rank)[q];
            const std::size_t key_chunk = chunks.of_rank(block.owner)[k];
            if (key_chunk > query_chunk) continue;
            for (std::size_t b = 0; b < queries.shape(0); ++b)
                for (std::size_t h = 0; h < queries.shape(1); ++h)
                    pairs.push_back(
                        {b, h, h / num_key_value_groups, rows_of_chunk(chunks, rank, q),
                         rows_of_chunk(chunks, block.owner, k), key_chunk == query_chunk});
        }
    return pairs;
}

// For each row of each head, the dot product of two tensors' rows.
Tensor3 row_dots(const Tensor4& a, const Tensor4& b) {  // (B, H, T, D) -> (B, H, T)
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(a);
    Tensor3 dots(std::array{batch_size, num_heads, seq_len});
    for (std::size_t row = 0; row < dots.size(); ++row)
        dots.data()[row] = dot_product(std::span(a.data() + row * head_dim, head_dim),
                                       std::span(b.data() + row * head_dim, head_dim));
    return dots;
}

// q kᵀ / √D; -inf where a causal mask hides the key.
Matrix block_scores(ConstMatrixView queries,  // (T, D)
                    ConstMatrixView keys,     // (S, D)
                    bool is_causal) {         // -> (T, S)
    const Real scale = 1 / std::sqrt(static_cast<Real>(queries.num_columns));
    Matrix scores(std::array{queries.num_rows, keys.num_rows});
    matmul_transposed(queries, keys, view_of(scores));
    for (std::size_t t = 0; t < queries.num_rows; ++t)
        for (std::size_t s = 0; s < keys.num_rows; ++s)
            scores(t, s) = is_causal && s > t ? -infinity : scores(t, s) * scale;
    return scores;
}

// The softmax: e^(score - log-sum-exp of the query's scores). That may include other keys.
Matrix block_weights(Matrix scores,                         // (T, S)
                     std::span<const Real> log_sum_exps) {  // (T) -> (T, S)
    for (std::size_t t = 0; t < scores.shape(0); ++t)
        for (std::size_t s = 0; s < scores.shape(1); ++s)
            scores(t, s) = std::exp(scores(t, s) - log_sum_exps[t]);
    return scores;
}

// The backward pass of the softmax and the scale 1/√D. As softmax_backward of chapter 12, but
// the dot product of weights and their gradient, over all keys, is given.
Matrix block_scores_backward(Matrix weights,                 // (T, S)
                             const Matrix& weight_gradient,  // (T, S)
                             std::span<const Real> dots,     // (T)
                             std::size_t head_dim) {         // D -> (T, S)
    const Real scale = 1 / std::sqrt(static_cast<Real>(head_dim));
    for (std::size_t t = 0; t < weights.shape(0); ++t)
        for (std::size_t s = 0; s < weights.shape(1); ++s)
            weights(t, s) *= scale * (weight_gradient(t, s) - dots[t]);
    return weights;
}

// The backward pass of attend_to_block and merge, for one pair: adds to the gradients. Other
// blocks are not needed, since log-sum-exp and dot product are those over all keys. Source:
// "FlashAttention-2" (Dao, 2023), algorithm 2.
void attend_to_block_backward(const ChunkPair& pair, const RingAttentionActivations& saved,
                              const KeyValueBlock& block,
                              const Tensor4& context_gradient,  // (B, H, T/n, D)
                              const Tensor3& dots,              // (B, H, T/n)
                              Tensor4& queries_gradient,        // (B, H, T/n, D)
                              KeyValueBlock& block_gradient) {
    const ConstMatrixView queries = pair.query_rows(saved.rotated.queries);     // (T, D)
    const ConstMatrixView keys = pair.key_rows(block.keys);                     // (S, D)
    const ConstMatrixView values = pair.key_rows(block.values);                 // (S, D)
    const ConstMatrixView output_gradient = pair.query_rows(context_gradient);  // (T, D)

    // Compute the weights again. Context = weights · values.
    Matrix weights = block_weights(block_scores(queries, keys, pair.is_causal),  // (T, S)
                                   pair.query_numbers(saved.log_sum_exp));
    Matrix weight_gradient(weights.shape());
    matmul_transposed(output_gradient, values, view_of(weight_gradient));
    transposed_matmul(view_of(weights), output_gradient, pair.key_rows(block_gradient.values),
                      Update::accumulate);

    // Weights = softmax(scale · queries · keysᵀ).
    const Matrix score_gradient = block_scores_backward(  // (T, S)
        std::move(weights), weight_gradient, pair.query_numbers(dots), queries.num_columns);
    matmul(view_of(score_gradient), keys, pair.query_rows(queries_gradient),
           Update::accumulate);
    transposed_matmul(view_of(score_gradient), queries, pair.key_rows(block_gradient.keys),
                      Update::accumulate);
}

// Attention of this rank's queries to the keys of all ranks. Sets context and log_sum_exp.
void ring_forward(Communicator& ranks, const ZigzagChunks& chunks,
                  RingAttentionActivations& saved) {
    const auto& [queries, keys, values] = saved.rotated;
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(queries);
    saved.context = xt::zeros<Real>(queries.shape());
    saved.log_sum_exp = Tensor3::from_shape({batch_size, num_heads, seq_len});
    saved.log_sum_exp.fill(-infinity);

    KeyValueBlock block{ranks.rank(), keys, values};
    for (std::size_t step = 0; step < ranks.size(); ++step) {
        if (step > 0) send_to_next_rank(ranks, chunks, block);
        for (const ChunkPair& pair : visible_pairs(chunks, ranks.rank(), queries, block))
            merge(pair.query_rows(saved.context), pair.query_numbers(saved.log_sum_exp),
                  attend_to_block(pair.query_rows(queries), pair.key_rows(block.keys),
                                  pair.key_rows(block.values), pair.is_causal));
    }
}

// Returns the gradients with respect to this rank's queries, keys and values.
QueriesKeysValues ring_backward(Communicator& ranks, const ZigzagChunks& chunks,
                                const RingAttentionActivations& saved,
                                const Tensor4& context_gradient) {  // (B, H, T/n, D)
    const auto& [queries, keys, values] = saved.rotated;
    // Over all keys, Σ weight · its gradient = context · its gradient.
    const Tensor3 dots = row_dots(saved.context, context_gradient);  // (B, H, T/n)

    Tensor4 queries_gradient = xt::zeros<Real>(queries.shape());
    KeyValueBlock block{ranks.rank(), keys, values};
    KeyValueBlock block_gradient{ranks.rank(), xt::zeros<Real>(keys.shape()),
                                 xt::zeros<Real>(values.shape())};
    // Send once more than in the forward pass: the gradients of this rank's keys come back.
    for (std::size_t step = 0; step < ranks.size(); ++step) {
        for (const ChunkPair& pair : visible_pairs(chunks, ranks.rank(), queries, block))
            attend_to_block_backward(pair, saved, block, context_gradient, dots,
                                     queries_gradient, block_gradient);
        if (ranks.size() == 1) continue;
        send_to_next_rank(ranks, chunks, block);
        send_to_next_rank(ranks, chunks, block_gradient);
    }
    return {std::move(queries_gradient), std::move(block_gradient.keys),
            std::move(block_gradient.values)};
}

}  // namespace

std::vector<std::size_t> ZigzagChunks::positions(std::size_t rank) const {
    std::vector<std::size_t> result;
    for (const std::size_t index : of_rank(rank)) {
        const auto [begin, size] = chunk(index);
        for (std::size_t t = begin; t < begin + size; ++t) result.push_back(t);
    }
    return result;
}

IdMatrix slice_positions(const IdMatrix& ids, const std::vector<std::size_t>& positions) {
    const std::size_t batch_size = ids.shape(0);
    IdMatrix slice(std::array{batch_size, positions.size()});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < positions.size(); ++t) slice(b, t) = ids(b, positions[t]);
    return slice;
}

BlockAttention attend_to_block(ConstMatrixView queries, ConstMatrixView keys,
                               ConstMatrixView values, bool is_causal) {
    Matrix scores = block_scores(queries, keys, is_causal);
    BlockAttention result{Matrix(std::array{queries.num_rows, values.num_columns}),
                          Vector(std::array{queries.num_rows})};
    for (std::size_t t = 0; t < queries.num_rows; ++t)
        result.log_sum_exp(t) = static_cast<Real>(log_sum_exp(view_of(scores)[t]));
    const Matrix weights = block_weights(
        std::move(scores), {result.log_sum_exp.data(), result.log_sum_exp.size()});
    matmul(view_of(weights), values, view_of(result.context));
    return result;
}

void merge(MatrixView context, std::span<Real> log_sum_exps, const BlockAttention& block) {
    for (std::size_t t = 0; t < log_sum_exps.size(); ++t) {
        // In the softmax over all keys, the weights of a block are its own softmax times
        // e^(its log-sum-exp - that of all).
        const Real before = log_sum_exps[t], of_block = block.log_sum_exp(t);
        const Real all = static_cast<Real>(log_sum_exp(std::array{before, of_block}));
        const Real old_share = std::exp(before - all), new_share = std::exp(of_block - all);
        for (std::size_t d = 0; d < context.num_columns; ++d)
            context[t][d] = context[t][d] * old_share + block.context(t, d) * new_share;
        log_sum_exps[t] = all;
    }
}

RingAttention::Inputs ring_inputs(const Config& config, const Communicator& ranks,
                                  std::size_t batch_size, std::size_t seq_len) {
    const ZigzagChunks chunks{seq_len, ranks.size()};
    const IdMatrix own_positions =
        slice_positions(position_ids(batch_size, seq_len), chunks.positions(ranks.rank()));
    return {{rotary_tables(config, seq_len).front(), own_positions, {}}, chunks};
}

AttentionLayer::Output RingAttention::operator()(const Tensor3& hidden_states,
                                                 const Inputs& inputs, Cache*) const {
    return {attention_forward(*this, hidden_states, inputs).output, {}};
}

ForwardPass<RingAttentionActivations> attention_forward(const RingAttention& attention,
                                                        const Tensor3& input,
                                                        const RingAttention::Inputs& inputs,
                                                        Generator* /*dropout_generator*/) {
    const auto& [layer, ranks] = attention;
    RingAttentionActivations saved;
    saved.input = input;
    saved.projected = project_qkv(layer, input);
    saved.rotated = apply_qk_norm_and_rope(layer.qk_norm, saved.projected, inputs.rope);
    ring_forward(*ranks, inputs.chunks, saved);
    return {project_output(layer, saved.context), std::move(saved)};
}

Tensor3 attention_backward(const RingAttention& attention, const RingAttention::Inputs& inputs,
                           const RingAttentionActivations& saved,
                           const Tensor3& output_gradient, RingAttention& gradient) {
    // The forward pass in reverse: output projection, ring, RoPE and QK norm, projections.
    const auto& [layer, ranks] = attention;
    const Tensor3 merged_gradient =
        linear_backward(layer.projections.o_proj, merge_heads(saved.context), output_gradient,
                        gradient.layer.projections.o_proj);
    const Tensor4 context_gradient = split_heads(merged_gradient, layer.num_attention_heads);
    const QueriesKeysValues rotated_gradient =
        ring_backward(*ranks, inputs.chunks, saved, context_gradient);
    const QueriesKeysValues projected_gradient = qk_norm_and_rope_backward(
        layer.qk_norm, saved.projected, inputs.rope, rotated_gradient, gradient.layer.qk_norm);
    return project_qkv_backward(layer, saved.input, projected_gradient, gradient.layer);
}

void add_parameters(ParameterList& list, const std::string& name, RingAttention& attention) {
    add_parameters(list, name, attention.layer);
}

ContextParallelModel context_parallel(const Model& model, Communicator& ranks) {
    return with_layers(model, [&](const PreNormBlock& block) {
        return PreNormBlockWith<RMSNorm, GatedMlp, RingAttention>{
            {block.self_attn, &ranks}, block.mlp, block.attention_norm, block.ffn_norm};
    });
}

}  // namespace llm
