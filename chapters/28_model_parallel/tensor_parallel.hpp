// Chapter 28, file 1 of 10: tensor parallelism. Each rank has some heads, some features of each
// MLP and some tokens of the vocabulary, and all ranks compute the same sequences.
#pragma once

#include "chapters/12_gradients/model_backward.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// The ranks that share each layer. Between the sublayers, each of them has the residual stream
// of all tokens or, with sequence parallelism, of its part of the tokens: below, T' is T or the
// size of this part. Source: "Megatron-LM" (Shoeybi et al., 2019), section 3, whose f is gather
// in the forward pass and sum in the backward pass, and whose g is the reverse; "Reducing
// Activation Recomputation in Large Transformer Models" (Korthikanti et al., 2022),
// section 4.2.
struct TensorParallelGroup {
    Communicator* ranks;
    bool sequence_parallel = false;
    std::size_t seq_len = 0;  // T; read with sequence parallelism: rank r has part_of(T, n, r)

    // The hidden states of all tokens. Without sequence parallelism, a rank has them already.
    Tensor3 gather(const Tensor3& hidden_states) const;  // (B, T', C) -> (B, T, C)
    // The sum over all ranks, of those tokens that this rank has between the sublayers. The
    // backward pass of sum is gather, and that of gather is sum.
    Tensor3 sum(const Tensor3& partial_sums) const;  // (B, T, C) -> (B, T', C)
};

// A layer of which this rank has a part: the sum of all parts' outputs is that of the layer.
template <class Layer>
struct TensorParallel {
    Layer part;
    TensorParallelGroup group;
};
// With F/n features.
struct TensorParallelMlp : TensorParallel<GatedMlp> {
    Tensor3 operator()(const Tensor3& hidden_states) const {  // (B, T', C) -> (B, T', C)
        return group.sum(part(group.gather(hidden_states)));
    }
};
// With H/n query heads. The attention is that of chapter 05, or a later one.
template <class Attention>
struct TensorParallelAttentionWith : TensorParallel<Attention> {
    using Inputs = typename Attention::Inputs;
    using Cache = typename Attention::Cache;

    AttentionLayer::Output operator()(const Tensor3& hidden_states,  // (B, T', C)
                                      const Inputs& inputs,          // of T positions
                                      Cache* cache = nullptr) const {
        auto [output, attentions] =
            this->part(this->group.gather(hidden_states), inputs, cache);
        return {this->group.sum(output), std::move(attentions)};
    }
};
template <class Attention>
using TensorParallelBlockWith =
    PreNormBlockWith<RMSNorm, TensorParallelMlp, TensorParallelAttentionWith<Attention>>;
using TensorParallelBlock = TensorParallelBlockWith<AttentionLayer>;
// A rank's part of a model. Embedding and head have the rows of its part of the vocabulary, and
// the sizes of the configuration are those of the part.
struct TensorParallelConfig : Config {
    TensorParallelGroup group;
    Part vocabulary;  // of the whole_vocab_size tokens, V
    std::size_t whole_vocab_size;
};
template <class Attention>
using TensorParallelModelWith =
    DecoderModel<TensorParallelBlockWith<Attention>, TensorParallelConfig>;
using TensorParallelModel = TensorParallelModelWith<AttentionLayer>;

// As in chapter 12, between gather and sum. The gradient of this rank's part is accumulated;
// the backward passes return that with respect to the input, (B, T', C).
ForwardPass<MlpActivations> mlp_forward(const TensorParallelMlp& mlp,
                                        const Tensor3& input);  // (B, T', C)
Tensor3 mlp_backward(const TensorParallelMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient,  // (B, T', C)
                     TensorParallelMlp& gradient);
template <class Attention>
auto attention_forward(const TensorParallelAttentionWith<Attention>& attention,
                       const Tensor3& input,                      // (B, T', C)
                       const typename Attention::Inputs& inputs,  // of T positions
                       Generator* dropout_generator = nullptr) {
    auto [output, saved] = attention_forward(attention.part, attention.group.gather(input),
                                             inputs, dropout_generator);
    return ForwardPass<decltype(saved)>{attention.group.sum(output), std::move(saved)};
}
template <class Attention, class Activations>
Tensor3 attention_backward(const TensorParallelAttentionWith<Attention>& attention,
                           const typename Attention::Inputs& inputs, const Activations& saved,
                           const Tensor3& output_gradient,  // (B, T', C)
                           TensorParallelAttentionWith<Attention>& gradient) {
    return attention.group.sum(attention_backward(
        attention.part, inputs, saved, attention.group.gather(output_gradient), gradient.part));
}
template <class Layer>
void add_parameters(ParameterList& list, const std::string& name,
                    TensorParallel<Layer>& layer) {
    add_parameters(list, name, layer.part);
}

// What a rank has of a parameter: some rows, some columns, or all of it. The rows of a bias are
// its numbers.
enum class Sharding { rows, columns, replicated };
struct Slice {
    Sharding sharding;
    Part part;                   // these rows or columns; not read if it is replicated
    std::size_t num_copies = 1;  // how many ranks have this slice
    bool is_first = true;        // this rank is the first of them
    // The gradient of each copy is that of its rank's heads or tokens alone: add them up.
    bool partial_gradients = false;
};
// Of a parameter with this name, as named_parameters() gives it. Throws ValueError unless the
// number of ranks divides H, and divides Hkv or is a multiple of it: then several ranks have
// the same key and value head.
Slice slice_of(const Config& config,  // of the whole model
               const std::string& name, const TensorParallelGroup& group);

// This rank's part of a model. Throws ValueError as slice_of does, and for a QK norm over all
// heads of a token.
TensorParallelModel tensor_parallel_part(const Model& whole, const TensorParallelGroup& group);
// The whole model, or gradient, on each rank; `like` has its sizes.
Model gather(const TensorParallelModel& part, const Model& like);

// Copies this rank's slices out of the whole model, or into it; `part` has them, with the names
// of the whole parameters. If several ranks have the same slice, the first one writes it.
enum class CopyDirection { to_part, to_whole };
void copy_slices(const Config& config, const TensorParallelGroup& group, Model& whole,
                 const std::vector<Parameter>& part, CopyDirection direction);

// Adds up the partial gradients of copies: of a key and value head that several ranks have, of
// QK norms and, with sequence parallelism, of all norms.
void sum_partial_gradients(const Config& config, const TensorParallelGroup& group,
                           const std::vector<Parameter>& gradient);
inline void sum_partial_gradients(const Config& config, TensorParallelModel& gradient) {
    sum_partial_gradients(config, gradient.config.group, named_parameters(gradient));
}

}  // namespace llm
