// Chapter 14, file 1 of 13 — How does a model learn to answer? Masked log-probabilities: SFT,
// DPO and GRPO are losses of these.
#pragma once

#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// The log-probability of each target: the log-softmax of its logits. Throws ValueError if the
// shapes do not match or a target is not in the vocabulary. Source: log_softmax and gather of
// PyTorch; TRL, selective_log_softmax.
Matrix token_log_probs(const Tensor3& logits,     // (B, T, V)
                       const IdMatrix& targets);  // (B, T) -> (B, T)

// The gradient with respect to the logits: (one_hot(target) - softmax) times the upstream
// gradient of the token. Throws ValueError as token_log_probs does.
Tensor3 token_log_probs_backward(const Tensor3& logits,           // (B, T, V)
                                 const IdMatrix& targets,         // (B, T)
                                 const Matrix& output_gradient);  // (B, T) -> (B, T, V)

// A question and its answer as tokens. A response usually ends with the end-of-text token.
struct Completion {
    std::vector<Id> prompt_ids, response_ids;
};

// Completions of unequal length, padded on the right. Position t of input_ids predicts position
// t of targets. The response mask is 1 where the target belongs to the response, and 0 in the
// prompt and in the padding. Source: Hugging Face, labels of -100; CS336, assignment 5.
struct ResponseBatch {
    IdMatrix input_ids;    // (B, T)
    IdMatrix targets;      // (B, T)
    Matrix response_mask;  // (B, T)
};
// Which targets the loss counts: the response, or prompt and response (never the padding).
enum class LossOn { response, everything };
// Throws ValueError if there are no completions, or if a prompt or a response is empty.
ResponseBatch make_response_batch(const std::vector<Completion>& completions, Id pad_token_id,
                                  LossOn loss_on = LossOn::response);

// The log-probability of each whole response: the sum over its tokens. The gradient with
// respect to each token is that of its sequence, times the mask.
Vector sequence_log_probs(const Matrix& log_probs,                  // (B, T)
                          const Matrix& response_mask);             // (B, T) -> (B)
Matrix sequence_log_probs_backward(const Matrix& response_mask,     // (B, T)
                                   const Vector& output_gradient);  // (B) -> (B, T)

// A loss of log-probabilities, and its gradient with respect to each of them.
struct TokenLoss {
    double loss;
    Matrix gradient;  // (B, T)
};

// Supervised fine-tuning (SFT): the mean of -log p over the masked tokens, the cross-entropy of
// chapter 12 if the mask is 1 everywhere. Throws ValueError if the mask is 0 everywhere.
// Source: "Training language models to follow instructions" (Ouyang et al., 2022), section 3.
TokenLoss sft_loss(const Matrix& log_probs,       // (B, T)
                   const Matrix& response_mask);  // (B, T)

}  // namespace llm
