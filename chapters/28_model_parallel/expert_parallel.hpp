// Chapter 28, file 5 of 10: expert parallelism. Each rank has some experts of each layer and
// some sequences, and tokens travel to their experts and back.
#pragma once

#include "chapters/13_training/data.hpp"
#include "chapters/18_experts/moe_decoder.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// The collective function all-to-all: each rank has a message for each rank. The first sent[0]
// values go to rank 0, the next sent[1] to rank 1, and so on; the first received[0] values of
// the result come from rank 0, and so on. In step s of n - 1, a rank sends to the one s places
// after it while it receives from the one s places before, so that no rank waits for one that
// waits for it. All ranks must call it. Throws ValueError unless there are n counts each, those
// of `sent` add up to the values, and sent[r] = received[r] on rank r. Source: MPI_Alltoallv;
// PyTorch, all_to_all_single.
template <class Number>
std::vector<Number> all_to_all(Communicator& ranks, std::span<const Number> values,
                               const std::vector<std::size_t>& sent,       // (n)
                               const std::vector<std::size_t>& received);  // (n)

// In an expert-parallel layer, a rank has M rows, sorted by expert: one for each of its own
// tokens and each expert of the token. It sends them to the ranks of their experts, and
// receives M' rows for its own experts, which it sorts by expert, as chapter 18 does with the
// tokens of one process. Source: "GShard" (Lepikhin et al., 2020); Megatron-LM,
// token_dispatcher.py.
struct ExpertExchange {
    std::vector<std::size_t> sent, received;  // (n): how many rows to and from each rank
    Dispatch dispatch;                        // of the M' rows to this rank's experts
};
// Tells each rank how many rows each of its experts gets from this one.
ExpertExchange plan_exchange(Communicator& ranks,
                             const Dispatch& dispatch);  // of M rows to all E experts
// Sends the rows to the ranks of their experts, and back. Each is the backward pass of the
// other.
Matrix dispatch_rows(Communicator& ranks, const ExpertExchange& exchange,
                     const Matrix& rows);  // (M, C) -> (M', C)
Matrix combine_rows(Communicator& ranks, const ExpertExchange& exchange,
                    const Matrix& rows);  // (M', C) -> (M, C)

// The MLP of a block. Of a mixture of experts, rank r has the experts part_of(E, n, r), and
// copies of the router and the shared expert. In training, a capacity is that of a rank's own
// tokens.
struct ExpertParallelMlp {
    MlpOrMoe part;
    Communicator* ranks;
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C) of own sequences
};
struct ExpertParallelActivations {
    MlpOrMoeActivations own_tokens;
    // Empty in a dense layer. Of own_experts, dispatch, experts and expert_outputs are set:
    // they are those of the M' rows.
    ExpertExchange exchange;
    MoeActivations own_experts;
};
// As in chapter 12. The backward pass returns the gradient with respect to the input,
// (B, T, C); that of this rank's experts is of the tokens of all ranks.
ForwardPass<ExpertParallelActivations> mlp_forward(const ExpertParallelMlp& mlp,
                                                   const Tensor3& input);  // (B, T, C)
Tensor3 mlp_backward(const ExpertParallelMlp& mlp, const ExpertParallelActivations& saved,
                     const Tensor3& output_gradient,  // (B, T, C)
                     ExpertParallelMlp& gradient);
void add_parameters(ParameterList& list, const std::string& name, ExpertParallelMlp& mlp);

using ExpertParallelBlock = PreNormBlockWith<RMSNorm, ExpertParallelMlp, PatternAttention>;
using ExpertParallelDecoder = DecoderModel<ExpertParallelBlock>;
// This rank's part of a model, or of a gradient. Its experts are numbered from 0.
ExpertParallelDecoder expert_parallel_part(const MoeDecoder& whole, Communicator& ranks);

// The share of all ranks' choices that each expert gets. Source: Megatron-LM, global_aux_loss.
Vector expert_load(Communicator& ranks, const MoeActivations& saved);  // -> (E)
// This rank's share of the losses of a batch, and its part of their gradient.
struct ExpertParallelLoss {
    double cross_entropy = 0;
    double aux_loss = 0;  // the sum over the layers, without its coefficient
};
// The gradients of cross-entropy and aux_loss_coef times the auxiliary loss are accumulated.
// The load is balanced over the tokens of balanced_ranks: all ranks of the batch.
ExpertParallelLoss forward_backward(const ExpertParallelDecoder& decoder,
                                    const Batch& batch,  // own sequences, (B, T)
                                    Real share,          // of their tokens in the whole batch
                                    Real aux_loss_coef, Communicator& balanced_ranks,
                                    ExpertParallelDecoder& gradient);

// The gradients of a rank's experts are whole: all tokens that chose them have come to it. All
// other gradients are those of its own tokens; sum_replicated_gradients adds them up.
struct ExpertsAndReplicated {
    std::vector<Parameter> experts, replicated;
};
ExpertsAndReplicated experts_and_replicated(ExpertParallelDecoder& model);
void sum_replicated_gradients(Communicator& ranks, ExpertParallelDecoder& gradient);
// The norm of the whole gradient, on each rank, after that sum: the experts of all ranks count,
// and the copies of all else once.
double expert_parallel_grad_norm(Communicator& ranks, ExpertParallelDecoder& gradient);

}  // namespace llm
