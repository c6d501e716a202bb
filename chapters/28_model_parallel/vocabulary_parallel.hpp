// Chapter 28, file 2 of 10: a vocabulary of which each rank has a part: embedding, head and
// loss.
#pragma once

#include "chapters/28_model_parallel/tensor_parallel.hpp"

namespace llm {

// The embeddings of those ids whose rows this rank has; 0 for the other ids. The sum over ranks
// is the embedding of chapter 09. Source: Megatron-LM, VocabParallelEmbedding.
Tensor3 vocabulary_parallel_embedding(const Matrix& weight,             // (V/n, C)
                                      Part vocabulary,                  // of V
                                      const IdMatrix& input_ids);       // (B, T) -> (B, T, C)
void vocabulary_parallel_embedding_backward(Part vocabulary,            // of V
                                            const IdMatrix& input_ids,  // (B, T)
                                            const Tensor3& output_gradient,  // (B, T, C)
                                            Matrix& gradient);               // (V/n, C)

// The cross-entropy of chapter 12, and its gradient, where each rank has the logits of a part
// of the vocabulary. For each position, a rank sends one number: the log-sum-exp of its logits.
// The loss is the same on all ranks. Source: Megatron-LM, vocab_parallel_cross_entropy (which
// sends three: maximum, sum and the target's logit).
struct VocabularyParallelLoss {
    double loss;
    Tensor3 logits_gradient;  // (B, T, V/n)
};
VocabularyParallelLoss vocabulary_parallel_cross_entropy(Communicator& ranks,
                                                         const Tensor3& logits,  // (B, T, V/n)
                                                         const IdMatrix& targets,  // (B, T)
                                                         Part vocabulary);         // of V

// check_input of chapter 09, for the whole vocabulary. Throws ValueError as it does.
void check_ids(const TensorParallelConfig& config, const IdMatrix& input_ids);  // (B, T)

// The two ends of a model: embedding, and head with loss. T' is T or, with sequence
// parallelism, this rank's part of it. The gradients are accumulated. Throws ValueError as
// check_ids does.
template <class Layer>
Tensor3 embed_tokens(const DecoderModel<Layer, TensorParallelConfig>& part,
                     const IdMatrix& input_ids) {  // (B, T) -> (B, T', C)
    check_ids(part.config, input_ids);
    return part.config.group.sum(
        vocabulary_parallel_embedding(part.embed_tokens, part.config.vocabulary, input_ids));
}
template <class Layer>
void embed_tokens_backward(const DecoderModel<Layer, TensorParallelConfig>& part,
                           const IdMatrix& input_ids,
                           const Tensor3& output_gradient,  // (B, T', C)
                           DecoderModel<Layer, TensorParallelConfig>& gradient) {
    vocabulary_parallel_embedding_backward(part.config.vocabulary, input_ids,
                                           part.config.group.gather(output_gradient),
                                           gradient.embed_tokens);
}
// Final norm, head and loss, forward and backward at once. The gradients are those of share
// times the loss.
struct HeadLoss {
    double loss;
    Tensor3 hidden_gradient;  // (B, T', C): with respect to last_hidden_state
};
template <class Layer>
HeadLoss head_forward_backward(const DecoderModel<Layer, TensorParallelConfig>& part,
                               const Tensor3& last_hidden_state,  // (B, T', C)
                               const IdMatrix& targets,           // (B, T)
                               Real share,
                               DecoderModel<Layer, TensorParallelConfig>& gradient) {
    check_ids(part.config, targets);
    const TensorParallelGroup& group = part.config.group;
    const Tensor3 normalized = group.gather(part.norm(last_hidden_state));  // (B, T, C)
    const Tensor3 logits = lm_head(part.head(), normalized);                // (B, T, V/n)
    const auto [loss, logits_gradient] = vocabulary_parallel_cross_entropy(
        *group.ranks, logits, targets, part.config.vocabulary);

    // The head, whose rows are divided: the gradient of its input is a sum. Then the norm.
    Matrix& head_gradient = part.lm_head ? *gradient.lm_head : gradient.embed_tokens;
    const Tensor3 normalized_gradient = group.sum(  // (B, T', C)
        lm_head_backward(part.head(), normalized, logits_gradient * share, head_gradient));
    return {loss,
            norm_backward(part.norm, last_hidden_state, normalized_gradient, gradient.norm)};
}

// The loss of a batch, on each rank; the gradient of this rank's part is accumulated. Copies of
// parameters then need sum_partial_gradients.
double forward_backward(const TensorParallelModel& part,
                        const IdMatrix& input_ids,      // (B, T)
                        const IdMatrix& targets,        // (B, T)
                        const AttentionInputs& inputs,  // of T positions
                        TensorParallelModel& gradient);

}  // namespace llm
