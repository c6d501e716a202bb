// Chapter 28, file 2 of 10: a vocabulary of which each rank has a part: embedding, head and
// loss.
#pragma once

#include "chapters/28_model_parallel/tensor_parallel.hpp"

namespace llm {

// The rows of the ids of which this rank has the embedding; 0 for others. The sum over ranks is
// the embedding. Source: Megatron-LM, VocabParallelEmbedding.
Tensor3 vocabulary_parallel_embedding(const Matrix& weight,        // (V/n, C)
                                      Part vocabulary,             // of V
                                      const IdMatrix& input_ids);  // (B, T) -> (B, T, C)
void vocabulary_parallel_embedding_backward(Part vocabulary, const IdMatrix& input_ids,
                                            const Tensor3& output_gradient,  // (B, T, C)
                                            Matrix& gradient);               // (V/n, C)

// The cross-entropy of chapter 12, and its gradient, where each rank has the logits of a part
// of the vocabulary. For each position, the ranks exchange one number: the log-sum-exp of its
// logits. Source: Megatron-LM, vocab_parallel_cross_entropy (which exchanges three).
struct VocabularyParallelLoss {
    double loss;
    Tensor3 logits_gradient;  // (B, T, V/n)
};
VocabularyParallelLoss vocabulary_parallel_cross_entropy(Communicator& ranks,
                                                         const Tensor3& logits,  // (B, T, V/n)
                                                         const IdMatrix& targets,  // (B, T)
                                                         Part vocabulary);         // of V

// Throws ValueError if an id is not in the whole vocabulary, of which a part has some tokens.
void check_ids(const TensorParallelConfig& config, const IdMatrix& input_ids);  // (B, T)

// The two ends of a model, with the shapes of a rank's tokens: T' is T or, with sequence
// parallelism, a part of it. The gradients are accumulated.
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
// Final norm, head and loss. The gradient is that of share times the loss.
struct HeadLoss {
    double loss;
    Tensor3 hidden_gradient;  // (B, T', C)
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
    const auto [loss, logits_gradient] = vocabulary_parallel_cross_entropy(
        *group.ranks, lm_head(part.head(), normalized), targets, part.config.vocabulary);
    Matrix& head_gradient = part.lm_head ? *gradient.lm_head : gradient.embed_tokens;
    const Tensor3 normalized_gradient = group.sum(
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
