// Chapter 28, file 4 of 10: context parallelism. Each rank has some tokens of a sequence, and
// the keys and values go around a ring.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// The tokens of a rank: of 2n chunks of a sequence, chunk r and chunk 2n - 1 - r. So all ranks
// have equal work under a causal mask ("zigzag"). Source: Llama 3 (2024), section 3.3.2.
struct ZigzagChunks {
    std::size_t seq_len, num_ranks;  // T, n

    Part chunk(std::size_t index) const { return part_of(seq_len, 2 * num_ranks, index); }
    std::array<std::size_t, 2> of_rank(std::size_t rank) const {
        return {rank, 2 * num_ranks - 1 - rank};
    }
    // Of these tokens, the positions in the whole sequence, in order.
    std::vector<std::size_t> positions(std::size_t rank) const;
};
// The columns of the positions. Shift targets before you slice them: the target of the last
// token of a chunk is on another rank.
IdMatrix slice_positions(const IdMatrix& ids,  // (B, T)
                         const std::vector<std::size_t>& positions);

// Attention of some queries to some keys: the softmax over these alone, and its log-sum-exp,
// with which results for several blocks of keys are merged into that for all of them.
struct BlockAttention {
    Matrix context;      // (T, D)
    Vector log_sum_exp;  // (T), of the scaled scores; -inf before the first block
};
BlockAttention attend_to_block(ConstMatrixView queries,  // (T, D)
                               ConstMatrixView keys,     // (S, D)
                               ConstMatrixView values,   // (S, D)
                               bool is_causal);          // T = S; query t sees keys 0 to t
void merge(MatrixView context, std::span<Real> log_sum_exp, const BlockAttention& block);

// The attention layer of chapter 05 on tokens of which each rank has two chunks. Source: "Ring
// Attention with Blockwise Transformers" (Liu et al., 2023).
struct RingAttention {
    AttentionLayer layer;
    Communicator* ranks;

    using Cache = LayerCache;
    // Of this rank's tokens: their positions in the whole sequence of T tokens.
    struct Inputs {
        AttentionInputs rope;  // table and position ids; its mask is not used
        ZigzagChunks chunks;
    };
    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T/n, C)
                                      const Inputs& inputs, Cache* cache = nullptr) const;
};
RingAttention::Inputs ring_inputs(const Config& config, const Communicator& ranks,
                                  std::size_t batch_size, std::size_t seq_len);  // T

struct RingAttentionActivations {
    Tensor3 input;                // (B, T/n, C)
    QueriesKeysValues projected;  // split into heads
    QueriesKeysValues rotated;    // after QK norm and RoPE
    Tensor4 context;              // (B, H, T/n, D)
    Tensor3 log_sum_exp;          // (B, H, T/n)
};
ForwardPass<RingAttentionActivations> attention_forward(const RingAttention& attention,
                                                        const Tensor3& input,
                                                        const RingAttention::Inputs& inputs,
                                                        Generator* dropout_generator = nullptr);
// Computes the weights again, block by block. The gradients of keys and values go around the
// ring with them, and are complete when they are back.
Tensor3 attention_backward(const RingAttention& attention, const RingAttention::Inputs& inputs,
                           const RingAttentionActivations& saved,
                           const Tensor3& output_gradient, RingAttention& gradient);
void add_parameters(ParameterList& list, const std::string& name, RingAttention& attention);

using ContextParallelModel = DecoderModel<PreNormBlockWith<RMSNorm, GatedMlp, RingAttention>>;
ContextParallelModel context_parallel(const Model& model, Communicator& ranks);

}  // namespace llm
