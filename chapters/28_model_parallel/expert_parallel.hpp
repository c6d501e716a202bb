// Chapter 28, file 5 of 10: expert parallelism. Each rank has some experts of each layer and
// some sequences, and tokens travel to their experts and back.
#pragma once

#include "chapters/13_training/data.hpp"
#include "chapters/18_experts/moe_decoder.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// The collective function all-to-all: each rank has a message for each rank. The first sent[0]
// values go to rank 0, the next sent[1] to rank 1, and so on; received[r] come from rank r, in
// the order of the ranks. All ranks call it; in step s of n - 1, a rank sends to the one s
// places after it while it receives from the one s places before, so that no rank waits for one
// that waits for it. Throws ValueError unless there are n counts each, those of `sent` add up
// to the values, and the rank keeps what it expects from itself. Source: MPI_Alltoallv;
// PyTorch, all_to_all_single.
template <class Number>
std::vector<Number> all_to_all(Communicator& ranks, std::span<const Number> values,
                               const std::vector<std::size_t>& sent,       // (n)
                               const std::vector<std::size_t>& received);  // (n)

// Who sends how many rows to whom, and in which order this rank has what it received: sorted by
// its own experts, as chapter 18 sorts the tokens of one process. Source: "GShard" (Lepikhin et
// al., 2020); Megatron-LM, token_dispatcher.py.
struct ExpertExchange {
    std::vector<std::size_t> sent, received;  // (n): rows to and from each rank
    Dispatch own_experts;                     // of the received rows
};
// Tells each rank how many rows each of its experts gets from this one.
ExpertExchange plan_exchange(Communicator& ranks, const Dispatch& dispatch);  // of E experts
// Rows to the ranks of their experts, (M, C) -> (M', C), and back, (M', C) -> (M, C). Each
// is what the backward pass of the other needs.
Matrix dispatch_rows(Communicator& ranks, const ExpertExchange& exchange, const Matrix& rows);
Matrix combine_rows(Communicator& ranks, const ExpertExchange& exchange, const Matrix& rows);

// The MLP of a block. Of a mixture of experts, rank r has the experts part_of(E, n, r) and all
// else: the router and the shared expert. In training, a capacity is that of a rank's own
// tokens.
struct ExpertParallelMlp {
    MlpOrMoe part;
    Communicator* ranks;
    Tensor3 operator()(const Tensor3& hidden_states) const;  // (B, T, C): own tokens
};
struct ExpertParallelActivations {
    MlpOrMoeActivations own_tokens;
    ExpertExchange exchange;     // empty in a dense layer, as is the next one:
    MoeActivations own_experts;  // dispatch, experts and expert_outputs of received rows
};
ForwardPass<ExpertParallelActivations> mlp_forward(const ExpertParallelMlp& mlp,
                                                   const Tensor3& input);
Tensor3 mlp_backward(const ExpertParallelMlp& mlp, const ExpertParallelActivations& saved,
                     const Tensor3& output_gradient, ExpertParallelMlp& gradient);
void add_parameters(ParameterList& list, const std::string& name, ExpertParallelMlp& mlp);

using ExpertParallelBlock = PreNormBlockWith<RMSNorm, ExpertParallelMlp, PatternAttention>;
using ExpertParallelDecoder = DecoderModel<ExpertParallelBlock>;
// This rank's part of a model, or of a gradient. Its experts are numbered from 0.
ExpertParallelDecoder expert_parallel_part(const MoeDecoder& whole, Communicator& ranks);

// The load of each expert, over the tokens of all ranks.
Vector expert_load(Communicator& ranks, const MoeActivations& saved);  // -> (E)
// This rank's share of the losses of a batch, and its part of their gradient.
struct ExpertParallelLoss {
    double cross_entropy = 0;
    double aux_loss = 0;  // the sum over the layers, without its coefficient
};
// `share` is that of this rank's tokens in the batch, and balanced_ranks has all ranks over
// whose tokens the load is balanced: those of the batch.
ExpertParallelLoss forward_backward(const ExpertParallelDecoder& decoder, const Batch& batch,
                                    Real share, Real aux_loss_coef,
                                    Communicator& balanced_ranks,
                                    ExpertParallelDecoder& gradient);

// The gradients of a rank's experts are whole: all tokens that chose them have come to it. All
// other gradients are those of its own tokens; sum_replicated_gradients adds them up.
struct ExpertsAndReplicated {
    std::vector<Parameter> experts, replicated;
};
ExpertsAndReplicated experts_and_replicated(ExpertParallelDecoder& model);
void sum_replicated_gradients(Communicator& ranks, ExpertParallelDecoder& gradient);
// The norm of the whole gradient, after that: the sum of the squares over all experts of all
// ranks, and once over the rest.
double expert_parallel_grad_norm(Communicator& ranks, ExpertParallelDecoder& gradient);

}  // namespace llm
