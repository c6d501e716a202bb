// Chapter 25, file 5 of 7: one vector for a text, and how it is trained.
#pragma once

#include "chapters/25_encoders/encoder.hpp"

namespace llm {

// One vector from those of a text's tokens: the mean, or the first one, [CLS]. Padding is not a
// part of the mean. Throws ValueError if the shapes differ or a text has no token. Source:
// Sentence-BERT (Reimers and Gurevych, 2019).
enum class Pooling { mean, cls };
Matrix pool(Pooling pooling,
            const Tensor3& hidden_states,                             // (B, T, C)
            const IdMatrix& padding_mask);                            // (B, T) -> (B, C)
Tensor3 pool_backward(Pooling pooling, const IdMatrix& padding_mask,  // (B, T)
                      const Matrix& output_gradient);                 // (B, C) -> (B, T, C)

// Rows of length 1: their dot products are cosines. A row of zeros stays. Source:
// torch.nn.functional.normalize.
Matrix l2_normalize(const Matrix& rows);                      // (N, C) -> (N, C)
Matrix l2_normalize_backward(const Matrix& rows,              // (N, C)
                             const Matrix& output_gradient);  // (N, C) -> (N, C)

// Contrastive learning with in-batch negatives: of all N passages of a batch, passage n belongs
// to query n. The loss is the cross-entropy of the cosines, divided by the temperature, with n
// as the target of row n. Throws ValueError unless there are as many passages as queries, of
// the same width, and the temperature is positive. Source: InfoNCE (van den Oord et al., 2018);
// DPR (Karpukhin et al., 2020); sentence-transformers, MultipleNegativesRankingLoss.
struct ContrastiveLoss {
    double loss;
    Matrix query_gradient, passage_gradient;  // (N, C), with respect to the arguments
};
ContrastiveLoss contrastive_loss(const Matrix& queries,   // (N, C)
                                 const Matrix& passages,  // (N, C)
                                 Real temperature);       // often 0.05

// One vector of length 1 for each text.
template <class Block>
Matrix embed(const Encoder<Block>& encoder, Pooling pooling, const BatchEncoding& texts) {
    return l2_normalize(pool(pooling, encoder(texts), texts.padding_mask));  // (B, C)
}

// The contrastive loss of an encoder that reads queries and passages; its gradient is
// accumulated.
template <class Block>
double forward_backward(const Encoder<Block>& encoder, Pooling pooling, Real temperature,
                        const BatchEncoding& queries, const BatchEncoding& passages,
                        Encoder<Block>& gradient) {
    const auto [query_states, saved_queries] = encoder_forward(encoder, queries);
    const auto [passage_states, saved_passages] = encoder_forward(encoder, passages);
    const ContrastiveLoss result =
        contrastive_loss(pool(pooling, query_states, queries.padding_mask),
                         pool(pooling, passage_states, passages.padding_mask), temperature);
    encoder_backward(encoder, saved_queries,
                     pool_backward(pooling, queries.padding_mask, result.query_gradient),
                     gradient);
    encoder_backward(encoder, saved_passages,
                     pool_backward(pooling, passages.padding_mask, result.passage_gradient),
                     gradient);
    return result.loss;
}

extern template double forward_backward(const Encoder<BertBlock>&, Pooling, Real,
                                        const BatchEncoding&, const BatchEncoding&,
                                        Encoder<BertBlock>&);
extern template Matrix embed(const Encoder<ModernBertBlock>&, Pooling, const BatchEncoding&);
extern template double forward_backward(const Encoder<ModernBertBlock>&, Pooling, Real,
                                        const BatchEncoding&, const BatchEncoding&,
                                        Encoder<ModernBertBlock>&);

}  // namespace llm
