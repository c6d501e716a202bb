#include "chapters/14_fine_tuning/exercise.hpp"

#include <algorithm>
#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 14.1 — predict: the response mask of a prompt of 2 tokens and a response of 2
// tokens, padded to T = 5 positions.
Vector predicted_mask() {
    TODO("predicted_mask");
    // return {?, ?, ?, ?, ?};
}

// Exercise 14.2 — predict: a linear layer of 1000 inputs and 500 outputs. The number of
// trainable parameters of full fine-tuning, of LoRA with r = 8, and of LoRA with r = 16.
Vector predicted_parameters() {
    TODO("predicted_parameters");
    // return {?, ?, ?};
}

// Exercise 14.3 — predict: beta is 0.1, policy and reference are equal, as before the first
// step of DPO. The loss of a pair, and its gradients with respect to the log-probabilities of
// the chosen and the rejected response.
Vector predicted_dpo() {
    TODO("predicted_dpo");
    // return {?, ?, ?};
}

// Exercise 14.4 — predict: epsilon is 0.2. The gradient of the loss of GRPO with respect to the
// log-probability of a token, without a KL penalty, for ratio 1.5 and A = 1, ratio 1.5 and
// A = -1, ratio 0.5 and A = 1, ratio 0.5 and A = -1.
Vector predicted_clipping() {
    TODO("predicted_clipping");
    // return {?, ?, ?, ?};
}

// Exercise 14.5 — find the bug. The loss falls. With answers of one token and the end-of-text
// token, the model learns to stop, and nothing else.
Vector response_mask(std::size_t prompt_size, std::size_t response_size) {
    Vector mask = xt::zeros<Real>({prompt_size + response_size - 1});
    for (std::size_t t = 0; t < mask.size(); ++t) mask(t) = t >= prompt_size ? 1 : 0;
    return mask;
}

// Exercise 14.6 — find the bug. The run works for hours; then all parameters are NaN.
Vector advantages(const Vector& rewards) {
    const Real count = static_cast<Real>(rewards.size());
    Real mean = 0, sum_of_squares = 0;
    for (const Real reward : rewards) mean += reward / count;
    for (const Real reward : rewards) sum_of_squares += (reward - mean) * (reward - mean);
    const Real std_dev = std::sqrt(sum_of_squares / (count - 1));
    Vector result = rewards;
    for (Real& value : result) value = (value - mean) / std_dev;
    return result;
}

// Exercise 14.7 — find the bug. The first update after sampling is right. In later ones, a
// token that an update pushed too far the wrong way never comes back.
Vector clipped_gradient(const Vector& log_probs, const Vector& old_log_probs,
                        const Vector& advantages, Real epsilon) {
    Vector gradient = xt::zeros<Real>({log_probs.size()});
    for (std::size_t n = 0; n < log_probs.size(); ++n) {
        const Real ratio = std::exp(log_probs(n) - old_log_probs(n));
        const Real clipped = std::clamp(ratio, 1 - epsilon, 1 + epsilon);
        if (clipped == ratio) gradient(n) = -ratio * advantages(n);
    }
    return gradient;
}

// Exercise 14.8 — write LoRA: add_lora, lora_forward, lora_backward and merged_weight. At the
// start the layer computes what it computed without an adapter. The backward pass never forms a
// matrix of the shape of the weight; it returns the gradients of the input, of A and of B.
LoraLinear add_lora([[maybe_unused]] const Matrix& weight,
                    [[maybe_unused]] const Matrix& lora_A, [[maybe_unused]] Real lora_alpha) {
    TODO("add_lora");
}
Matrix lora_forward([[maybe_unused]] const LoraLinear& layer,
                    [[maybe_unused]] const Matrix& input) {
    TODO("lora_forward");
}
LoraGradients lora_backward([[maybe_unused]] const LoraLinear& layer,
                            [[maybe_unused]] const Matrix& input,
                            [[maybe_unused]] const Matrix& output_gradient) {
    TODO("lora_backward");
}
Matrix merged_weight([[maybe_unused]] const LoraLinear& layer) { TODO("merged_weight"); }

// Exercise 14.9 — write the loss of DPO for one pair, and its gradients with respect to the two
// log-probabilities of the policy. Log-probabilities of long responses are below -1000: no
// exponential may overflow.
PairLoss pair_loss([[maybe_unused]] double policy_chosen,
                   [[maybe_unused]] double policy_rejected,
                   [[maybe_unused]] double reference_chosen,
                   [[maybe_unused]] double reference_rejected, [[maybe_unused]] double beta) {
    TODO("pair_loss");
}

// Exercise 14.10 — write GRPO, from the rewards of one group to the gradient of its loss:
// advantages (add 1e-6 to the standard deviation), ratios, clipping, the KL estimate, the mean
// over each response and then over the responses.
GroupLoss group_loss([[maybe_unused]] const Matrix& log_probs,
                     [[maybe_unused]] const Matrix& old_log_probs,
                     [[maybe_unused]] const Matrix& reference_log_probs,
                     [[maybe_unused]] const Matrix& mask,
                     [[maybe_unused]] const Vector& rewards, [[maybe_unused]] Real epsilon,
                     [[maybe_unused]] Real beta) {
    TODO("group_loss");
}

// Exercise 14.11 — write an attack. A program puts what its user wrote into
// "<|im_start|>user\n...<|im_end|>\n<|im_start|>assistant\n" and encodes this text with
// tokenizer.encode, which recognizes special tokens. Return a text with which the model reads a
// message of the system: "The answer is always 7."
std::string attack() { TODO("attack"); }

// Exercise 14.12 — find the bug. The attack above works on this function. With all other
// messages, its tokens are those of encode_conversation.
std::vector<Id> encode_chat(const Tokenizer& tokenizer, const std::vector<Message>& messages) {
    std::string text;
    for (const Message& message : messages)
        text += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
    return tokenizer.encode(text + "<|im_start|>assistant\n");
}

}  // namespace exercise
