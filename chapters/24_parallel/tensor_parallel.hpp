// Chapter 24, file 6 of 10: tensor parallelism. Each rank has some heads, some features of each
// MLP and some tokens of the vocabulary, and all ranks compute the same sequences.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// The ranks that share each layer, as one of them sees them, and what it has of the residual
// stream between sublayers: all tokens or, with sequence parallelism, a part of them. Source:
// "Megatron-LM" (Shoeybi et al., 2019), section 3, whose f and g these functions are; "Reducing
// Activation Recomputation in Large Transformer Models" (Korthikanti et al., 2022),
// section 4.2.
struct TensorParallelGroup {
    Communicator* ranks;
    bool sequence_parallel = false;
    std::size_t seq_len = 0;  // T, with sequence parallelism: rank r has part_of(T, n, r)

    // All tokens of hidden states of which each rank has a part, or the tokens as they are.
    Tensor3 gather(const Tensor3& hidden_states) const;  // (B, T or a part, C) -> (B, T, C)
    // The sum over all ranks; with sequence parallelism, of this rank's tokens. Each of the two
    // is what the backward pass of the other needs.
    Tensor3 sum(const Tensor3& partial_sums) const;  // (B, T, C) -> (B, T or a part, C)
};

// A layer of which this rank has a part: the sum of all parts' outputs is that of the layer.
template <class Layer>
struct TensorParallel {
    Layer part;
    TensorParallelGroup group;
};
struct TensorParallelMlp : TensorParallel<GatedMlp> {  // F/n features
    Tensor3 operator()(const Tensor3& hidden_states) const {
        return group.sum(part(group.gather(hidden_states)));
    }
};
struct TensorParallelAttention : TensorParallel<AttentionLayer> {  // H/n query heads
    using Inputs = AttentionInputs;
    using Cache = LayerCache;

    AttentionLayer::Output operator()(const Tensor3& hidden_states,
                                      const AttentionInputs& inputs,  // of T positions
                                      LayerCache* cache = nullptr) const;
};
using TensorParallelBlock =
    PreNormBlockWith<RMSNorm, TensorParallelMlp, TensorParallelAttention>;
// Embedding and head have the rows of this rank's tokens of the vocabulary.
using TensorParallelModel = DecoderModel<TensorParallelBlock>;

ForwardPass<MlpActivations> mlp_forward(const TensorParallelMlp& mlp, const Tensor3& input);
Tensor3 mlp_backward(const TensorParallelMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient, TensorParallelMlp& gradient);
ForwardPass<AttentionActivations> attention_forward(const TensorParallelAttention& attention,
                                                    const Tensor3& input,
                                                    const AttentionInputs& inputs,
                                                    Generator* dropout_generator = nullptr);
Tensor3 attention_backward(const TensorParallelAttention& attention,
                           const AttentionInputs& inputs, const AttentionActivations& saved,
                           const Tensor3& output_gradient, TensorParallelAttention& gradient);
template <class Layer>
void add_parameters(ParameterList& list, const std::string& name,
                    TensorParallel<Layer>& layer) {
    add_parameters(list, name, layer.part);
}

// What a rank has of a parameter: these rows or columns, or all of it.
enum class Sharding { rows, columns, replicated };
struct Slice {
    Sharding sharding;
    Part part;
    std::size_t num_copies;  // so many ranks have the same slice
    bool is_first;           // this rank is the first of them
};
// Of a parameter with this name, as named_parameters() gives it. Throws ValueError unless the
// ranks divide H, and divide Hkv or are a multiple of it: then several have the same key and
// value head.
Slice slice_of(const Config& config, const std::string& name, std::size_t num_ranks,
               std::size_t rank);

// This rank's part of a model. Throws ValueError as slice_of does, and for a QK norm over all
// heads of a token, whose mean would have to be summed over ranks.
TensorParallelModel tensor_parallel_part(const Model& whole, const TensorParallelGroup& group);
// The whole model, or gradient, on each rank; `like` has its sizes.
Model gather(const TensorParallelModel& model, const Model& like);

// The cross-entropy of chapter 12 where each rank has the logits of some tokens of the
// vocabulary: two numbers for each position are exchanged, not the logits.
struct ShardedCrossEntropy {
    double loss;
    Tensor3 logits_gradient;  // (B, T, V/n)
};
ShardedCrossEntropy sharded_cross_entropy(Communicator& ranks,
                                          const Tensor3& logits,    // (B, T, V/n)
                                          const IdMatrix& targets,  // (B, T)
                                          std::size_t vocab_size);  // V

// The rows of a part of the vocabulary; 0 for other tokens.
Tensor3 sharded_embedding(const Matrix& weight,        // (V/n, C)
                          Part vocabulary,             // of V
                          const IdMatrix& input_ids);  // (B, T) -> (B, T, C)
void sharded_embedding_backward(Part vocabulary, const IdMatrix& input_ids,
                                const Tensor3& output_gradient,  // (B, T, C)
                                Matrix& gradient);               // (V/n, C)

// The loss of a batch, on each rank; the gradients of this rank's part are accumulated.
double forward_backward(const TensorParallelModel& model, std::size_t vocab_size,  // V
                        const IdMatrix& input_ids,                                 // (B, T)
                        const IdMatrix& targets,                                   // (B, T)
                        const AttentionInputs& inputs,  // of T positions
                        TensorParallelModel& gradient);
// Adds up the gradients of parameters of which each rank has computed a part: those of copies
// of a key and value head, of QK norms, and, with sequence parallelism, of all norms.
void sum_partial_gradients(const Config& config, TensorParallelModel& gradient);

}  // namespace llm
