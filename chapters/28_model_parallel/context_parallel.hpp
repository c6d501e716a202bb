// Chapter 28, file 4 of 10: context parallelism. Each rank has some tokens of a sequence, and
// the keys and values go around a ring.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// Which tokens each rank has. The T positions of a sequence are cut into 2n chunks, and rank r
// has chunk r and chunk 2n - 1 - r, so that all ranks have equal work under a causal mask
// ("zigzag"). Source: Llama 3 (2024), section 3.3.2.
struct ZigzagChunks {
    std::size_t seq_len, num_ranks;  // T, n

    // The positions of a chunk, and the numbers of a rank's two chunks.
    Part chunk(std::size_t index) const { return part_of(seq_len, 2 * num_ranks, index); }
    std::array<std::size_t, 2> of_rank(std::size_t rank) const {
        return {rank, 2 * num_ranks - 1 - rank};
    }
    // The positions of a rank's tokens, in order: (T/n).
    std::vector<std::size_t> positions(std::size_t rank) const;
};
// The ids at some positions of each sequence. Shift targets before you slice them: the target
// of the last token of a chunk is on another rank.
IdMatrix slice_positions(const IdMatrix& ids,                         // (B, T)
                         const std::vector<std::size_t>& positions);  // (T/n) -> (B, T/n)

// Attention of some queries to some keys: the softmax over these keys alone, and the
// log-sum-exp of their scores, which merge needs.
struct BlockAttention {
    Matrix context;      // (T, D)
    Vector log_sum_exp;  // (T), of the scaled scores
};
BlockAttention attend_to_block(ConstMatrixView queries,  // (T, D)
                               ConstMatrixView keys,     // (S, D)
                               ConstMatrixView values,   // (S, D)
                               bool is_causal);          // T = S; query t sees keys 0 to t
// Attention to the keys so far becomes attention to them and the keys of a block. Before the
// first block, the log-sum-exps are -inf and the context is 0. Source: ring-flash-attention,
// update_out_and_lse.
void merge(MatrixView context,            // (T, D)
           std::span<Real> log_sum_exps,  // (T)
           const BlockAttention& block);

// The attention layer of chapter 05, for a rank that has T/n tokens of each sequence. Its
// queries stay; keys and values go around the ring of ranks. Source: "Ring Attention with
// Blockwise Transformers" (Liu et al., 2023).
struct RingAttention {
    AttentionLayer layer;
    Communicator* ranks;

    using Cache = LayerCache;
    struct Inputs {
        AttentionInputs rope;  // position ids (B, T/n), a table of T positions; without a mask
        ZigzagChunks chunks;
    };
    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T/n, C)
                                      const Inputs& inputs, Cache* cache = nullptr) const;
};
// The inputs of this rank. Throws ValueError if T exceeds max_position_embeddings.
RingAttention::Inputs ring_inputs(const Config& config, const Communicator& ranks,
                                  std::size_t batch_size,  // B
                                  std::size_t seq_len);    // T, of the whole sequence

struct RingAttentionActivations {
    Tensor3 input;                // (B, T/n, C)
    QueriesKeysValues projected;  // split into heads
    QueriesKeysValues rotated;    // after QK norm and RoPE
    Tensor4 context;              // (B, H, T/n, D)
    Tensor3 log_sum_exp;          // (B, H, T/n), over all keys that a query sees
};
// As in chapter 12, but without dropout: the generator is not used.
ForwardPass<RingAttentionActivations> attention_forward(const RingAttention& attention,
                                                        const Tensor3& input,  // (B, T/n, C)
                                                        const RingAttention::Inputs& inputs,
                                                        Generator* dropout_generator = nullptr);
// Computes the weights again, block by block. The gradients of keys and values go around the
// ring with them, and are complete when they are back. Returns the gradient with respect to the
// input, (B, T/n, C).
Tensor3 attention_backward(const RingAttention& attention, const RingAttention::Inputs& inputs,
                           const RingAttentionActivations& saved,
                           const Tensor3& output_gradient,  // (B, T/n, C)
                           RingAttention& gradient);
void add_parameters(ParameterList& list, const std::string& name, RingAttention& attention);

// A model whose attention layers are rings; all parameters are copies.
using ContextParallelModel = DecoderModel<PreNormBlockWith<RMSNorm, GatedMlp, RingAttention>>;
ContextParallelModel context_parallel(const Model& model, Communicator& ranks);

}  // namespace llm
