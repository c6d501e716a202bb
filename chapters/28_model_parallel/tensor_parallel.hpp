// Chapter 28, file 1 of 10: tensor parallelism. Each rank has some heads, some features of each
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
template <class Attention>  // of chapter 05, or a later one
struct TensorParallelAttentionWith : TensorParallel<Attention> {  // H/n query heads
    using Inputs = typename Attention::Inputs;
    using Cache = typename Attention::Cache;

    AttentionLayer::Output operator()(const Tensor3& hidden_states,
                                      const Inputs& inputs,  // of T positions
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

ForwardPass<MlpActivations> mlp_forward(const TensorParallelMlp& mlp, const Tensor3& input);
Tensor3 mlp_backward(const TensorParallelMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient, TensorParallelMlp& gradient);
template <class Attention>
auto attention_forward(const TensorParallelAttentionWith<Attention>& attention,
                       const Tensor3& input, const typename Attention::Inputs& inputs,
                       Generator* dropout_generator = nullptr) {
    const auto& [part, group] = static_cast<const TensorParallel<Attention>&>(attention);
    auto [output, saved] =
        attention_forward(part, group.gather(input), inputs, dropout_generator);
    return ForwardPass<decltype(saved)>{group.sum(output), std::move(saved)};
}
template <class Attention, class Activations>
Tensor3 attention_backward(const TensorParallelAttentionWith<Attention>& attention,
                           const typename Attention::Inputs& inputs, const Activations& saved,
                           const Tensor3& output_gradient,
                           TensorParallelAttentionWith<Attention>& gradient) {
    const auto& [part, group] = static_cast<const TensorParallel<Attention>&>(attention);
    return group.sum(
        attention_backward(part, inputs, saved, group.gather(output_gradient), gradient.part));
}
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
    std::size_t num_copies = 1;      // so many ranks have the same slice,
    bool is_first = true;            // this rank is the first of them, and
    bool partial_gradients = false;  // their gradients are of their own heads or tokens alone
};
// Of a parameter with this name, as named_parameters() gives it. Throws ValueError unless the
// number of ranks divides H, and divides Hkv or is a multiple of it: then several ranks have
// the same key and value head.
Slice slice_of(const Config& config, const std::string& name, const TensorParallelGroup& group);

// This rank's part of a model. Throws ValueError as slice_of does, and for a QK norm over all
// heads of a token.
TensorParallelModel tensor_parallel_part(const Model& whole, const TensorParallelGroup& group);
// The whole model, or gradient, on each rank; `like` has its sizes.
Model gather(const TensorParallelModel& part, const Model& like);

// Copies this rank's slices of parameters, which have the names of the whole ones. If several
// ranks have the same slice, the first of them writes it into the whole model.
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
