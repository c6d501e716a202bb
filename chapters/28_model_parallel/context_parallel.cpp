#include "chapters/28_model_parallel/context_parallel.hpp"

#include <cmath>
#include <utility>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/tensors/elementwise.hpp"
#include "common/tensors/head_view.hpp"

namespace llm {
namespace {

// Keys and values of the chunks of one rank, as they go around the ring, and in the backward
// pass their gradients.
struct KeysValues {
    std::size_t owner;
    Tensor4 keys, values;  // (B, Hkv, S, D)
};

void pass_tensor(Communicator& ranks, Tensor4& states, std::size_t received_len) {
    auto shape = states.shape();
    shape[2] = received_len;
    Tensor4 received(shape);
    const std::size_t n = ranks.size(), rank = ranks.rank();
    ranks.send_receive<Real>({states.data(), states.size()}, (rank + 1) % n,
                             {received.data(), received.size()}, (rank + n - 1) % n);
    states = std::move(received);
}

// Sends them to the next rank, and receives those that the previous rank has.
void pass_on(Communicator& ranks, const ZigzagChunks& chunks, KeysValues& block) {
    block.owner = (block.owner + ranks.size() - 1) % ranks.size();
    const std::size_t received_len = chunks.positions(block.owner).size();
    pass_tensor(ranks, block.keys, received_len);
    pass_tensor(ranks, block.values, received_len);
}

// The rows of a head's queries and keys that meet, and the heads.
struct ChunkPair {
    std::size_t b, h, kv_head;
    Part queries, keys;
    bool is_causal;  // the same chunk: query t sees keys 0 to t; otherwise all
};

// Calls visit(pair) for each head, and each chunk of this rank's queries with each chunk of the
// block's keys that they see.
template <class Visit>
void for_chunks_and_heads(const RingAttention::Inputs& inputs, const Communicator& ranks,
                          const KeysValues& block, const Tensor4& queries, const Visit& visit) {
    const ZigzagChunks& chunks = inputs.chunks;
    const auto rows = [&](std::size_t rank, std::size_t i) {
        const std::size_t first = chunks.chunk(chunks.of_rank(rank)[0]).size;
        return i == 0 ? Part{0, first}
                      : Part{first, chunks.chunk(chunks.of_rank(rank)[1]).size};
    };
    const std::size_t group_size = queries.shape(1) / block.keys.shape(1);  // G
    for (std::size_t q = 0; q < 2; ++q)
        for (std::size_t k = 0; k < 2; ++k) {
            const std::size_t of_queries = chunks.of_rank(ranks.rank())[q];
            const std::size_t of_keys = chunks.of_rank(block.owner)[k];
            if (of_keys > of_queries) continue;  // all masked
            for (std::size_t b = 0; b < queries.shape(0); ++b)
                for (std::size_t h = 0; h < queries.shape(1); ++h)
                    visit(ChunkPair{b, h, h / group_size, rows(ranks.rank(), q),
                                    rows(block.owner, k), of_keys == of_queries});
        }
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

// q kᵀ / √D of a block; -inf where a causal mask hides the key.
Matrix block_scores(ConstMatrixView queries, ConstMatrixView keys, bool is_causal) {
    const Real scale = 1 / std::sqrt(static_cast<Real>(queries.num_columns));
    Matrix scores(std::array{queries.num_rows, keys.num_rows});
    matmul_transposed(queries, keys, view_of(scores));
    for (std::size_t t = 0; t < queries.num_rows; ++t)
        for (std::size_t s = 0; s < keys.num_rows; ++s)
            scores(t, s) = is_causal && s > t ? -infinity : scores(t, s) * scale;
    return scores;
}

// The softmax weights of a block, given the log-sum-exp of each query's scores.
Matrix block_weights(Matrix scores, std::span<const Real> sums) {
    for (std::size_t t = 0; t < scores.shape(0); ++t)
        for (std::size_t s = 0; s < scores.shape(1); ++s)
            scores(t, s) = std::exp(scores(t, s) - sums[t]);
    return scores;
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
    const Matrix scores = block_scores(queries, keys, is_causal);
    BlockAttention result{Matrix(std::array{queries.num_rows, values.num_columns}),
                          Vector(std::array{queries.num_rows})};
    for (std::size_t t = 0; t < queries.num_rows; ++t)
        result.log_sum_exp(t) = static_cast<Real>(log_sum_exp(view_of(scores)[t]));
    const Matrix weights =
        block_weights(scores, {result.log_sum_exp.data(), result.log_sum_exp.size()});
    matmul(view_of(weights), values, view_of(result.context));
    return result;
}

void merge(MatrixView context, std::span<Real> sums, const BlockAttention& block) {
    for (std::size_t t = 0; t < sums.size(); ++t) {
        // The weights of a block are its own softmax times e^(its log-sum-exp - that of all).
        const Real before = sums[t], of_block = block.log_sum_exp(t);
        const Real all = static_cast<Real>(log_sum_exp(std::array{before, of_block}));
        const Real old_share = std::exp(before - all), new_share = std::exp(of_block - all);
        for (std::size_t d = 0; d < context.num_columns; ++d)
            context[t][d] = context[t][d] * old_share + block.context(t, d) * new_share;
        sums[t] = all;
    }
}

RingAttention::Inputs ring_inputs(const Config& config, const Communicator& ranks,
                                  std::size_t batch_size, std::size_t seq_len) {
    const ZigzagChunks chunks{seq_len, ranks.size()};
    const std::vector<std::size_t> positions = chunks.positions(ranks.rank());
    IdMatrix ids(std::array{batch_size, positions.size()});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < positions.size(); ++t) ids(b, t) = Id(positions[t]);
    return {{rotary_tables(config, seq_len).front(), ids, {}}, chunks};
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
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(saved.rotated.queries);
    saved.context = xt::zeros<Real>(saved.rotated.queries.shape());
    saved.log_sum_exp = Tensor3::from_shape({batch_size, num_heads, seq_len});
    saved.log_sum_exp.fill(-infinity);

    KeysValues block{ranks->rank(), saved.rotated.keys, saved.rotated.values};
    for (std::size_t step = 0; step < ranks->size(); ++step) {
        if (step > 0) pass_on(*ranks, inputs.chunks, block);
        for_chunks_and_heads(
            inputs, *ranks, block, saved.rotated.queries, [&](const ChunkPair& p) {
                const BlockAttention result = attend_to_block(
                    head_view(saved.rotated.queries, p.b, p.h)
                        .rows(p.queries.begin, p.queries.size),
                    head_view(block.keys, p.b, p.kv_head).rows(p.keys.begin, p.keys.size),
                    head_view(block.values, p.b, p.kv_head).rows(p.keys.begin, p.keys.size),
                    p.is_causal);
                merge(head_view(saved.context, p.b, p.h).rows(p.queries.begin, p.queries.size),
                      {&saved.log_sum_exp(p.b, p.h, p.queries.begin), p.queries.size}, result);
            });
    }
    return {project_output(layer, saved.context), std::move(saved)};
}

Tensor3 attention_backward(const RingAttention& attention, const RingAttention::Inputs& inputs,
                           const RingAttentionActivations& saved,
                           const Tensor3& output_gradient, RingAttention& gradient) {
    const auto& [layer, ranks] = attention;
    const Tensor4& queries = saved.rotated.queries;
    const Tensor3 merged = linear_backward(layer.projections.o_proj, merge_heads(saved.context),
                                           output_gradient, gradient.layer.projections.o_proj);
    const Tensor4 context_gradient = split_heads(merged, queries.shape(1));
    const Tensor3 dots = row_dots(context_gradient, saved.context);

    // One round more than in the forward pass, so that the gradients come back.
    QueriesKeysValues result{xt::zeros<Real>(queries.shape()), {}, {}};
    KeysValues block{ranks->rank(), saved.rotated.keys, saved.rotated.values};
    KeysValues block_gradient{ranks->rank(), xt::zeros<Real>(block.keys.shape()),
                              xt::zeros<Real>(block.values.shape())};
    for (std::size_t step = 0; step < ranks->size(); ++step) {
        for_chunks_and_heads(inputs, *ranks, block, queries, [&](const ChunkPair& p) {
            const auto q_rows = [&](const auto& view) {
                return view.rows(p.queries.begin, p.queries.size);
            };
            const auto k_rows = [&](const auto& view) {
                return view.rows(p.keys.begin, p.keys.size);
            };
            const ConstMatrixView q = q_rows(head_view(queries, p.b, p.h));
            const ConstMatrixView dc = q_rows(head_view(context_gradient, p.b, p.h));
            const ConstMatrixView k =
                k_rows(head_view(std::as_const(block.keys), p.b, p.kv_head));
            const ConstMatrixView v =
                k_rows(head_view(std::as_const(block.values), p.b, p.kv_head));

            // The weights again, and chapter 12's gradients.
            Matrix weights =
                block_weights(block_scores(q, k, p.is_causal),
                              {&saved.log_sum_exp(p.b, p.h, p.queries.begin), p.queries.size});
            transposed_matmul(view_of(weights), dc,
                              k_rows(head_view(block_gradient.values, p.b, p.kv_head)),
                              Update::accumulate);
            Matrix weight_gradient(weights.shape());
            matmul_transposed(dc, v, view_of(weight_gradient));
            const Real scale = 1 / std::sqrt(static_cast<Real>(q.num_columns));
            for (std::size_t t = 0; t < q.num_rows; ++t)
                for (std::size_t s = 0; s < k.num_rows; ++s)
                    weights(t, s) *=
                        scale * (weight_gradient(t, s) - dots(p.b, p.h, p.queries.begin + t));
            matmul(view_of(weights), k, q_rows(head_view(result.queries, p.b, p.h)),
                   Update::accumulate);
            transposed_matmul(view_of(weights), q,
                              k_rows(head_view(block_gradient.keys, p.b, p.kv_head)),
                              Update::accumulate);
        });
        if (ranks->size() > 1) {
            pass_on(*ranks, inputs.chunks, block);
            pass_on(*ranks, inputs.chunks, block_gradient);
        }
    }
    result.keys = std::move(block_gradient.keys);
    result.values = std::move(block_gradient.values);
    const QueriesKeysValues projected = qk_norm_and_rope_backward(
        layer.qk_norm, saved.projected, inputs.rope, result, gradient.layer.qk_norm);
    return project_qkv_backward(layer, saved.input, projected, gradient.layer);
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
