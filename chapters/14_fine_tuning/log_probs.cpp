#include "chapters/14_fine_tuning/log_probs.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"

namespace llm {
namespace {

void check_log_prob_targets(const Tensor3& logits, const IdMatrix& targets) {
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    require(targets.shape() == std::array{batch_size, seq_len},
            "token_log_probs: targets of {} do not fit logits of {}", targets.shape(),
            logits.shape());
    for (const Id target : targets)
        require(target >= 0 && static_cast<std::size_t>(target) < vocab_size,
                "token_log_probs: there is no token {} in a vocabulary of {}", target,
                vocab_size);
}

std::span<const Real> logits_at(const Tensor3& logits, std::size_t b, std::size_t t) {
    return {&logits(b, t, 0), logits.shape(2)};
}

}  // namespace

Matrix token_log_probs(const Tensor3& logits, const IdMatrix& targets) {
    check_log_prob_targets(logits, targets);
    Matrix log_probs(targets.shape());  // (B, T)
    for (std::size_t b = 0; b < targets.shape(0); ++b)
        for (std::size_t t = 0; t < targets.shape(1); ++t) {
            const auto target = static_cast<std::size_t>(targets(b, t));
            const double target_logit = static_cast<double>(logits(b, t, target));
            log_probs(b, t) =
                static_cast<Real>(target_logit - log_sum_exp(logits_at(logits, b, t)));
        }
    return log_probs;
}

Tensor3 token_log_probs_backward(const Tensor3& logits, const IdMatrix& targets,
                                 const Matrix& output_gradient) {
    check_log_prob_targets(logits, targets);
    require(output_gradient.shape() == targets.shape(),
            "token_log_probs_backward: a gradient of {} does not fit targets of {}",
            output_gradient.shape(), targets.shape());
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    Tensor3 gradient = xt::zeros<Real>({batch_size, seq_len, vocab_size});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t) {
            const Real upstream = output_gradient(b, t);
            if (upstream == 0) continue;  // a masked position
            const double log_sum = log_sum_exp(logits_at(logits, b, t));
            for (std::size_t v = 0; v < vocab_size; ++v) {
                const double probability = std::exp(double(logits(b, t, v)) - log_sum);
                gradient(b, t, v) = -upstream * static_cast<Real>(probability);
            }
            gradient(b, t, static_cast<std::size_t>(targets(b, t))) += upstream;
        }
    return gradient;
}

namespace {

// The number of tokens of the longest completion.
std::size_t longest_completion(const std::vector<Completion>& completions) {
    require(!completions.empty(), "make_response_batch: there are no completions");
    std::size_t longest = 0;
    for (const auto& [prompt_ids, response_ids] : completions) {
        require(!prompt_ids.empty() && !response_ids.empty(),
                "make_response_batch: a prompt of {} and a response of {} tokens; each needs "
                "at least one",
                prompt_ids.size(), response_ids.size());
        longest = std::max(longest, prompt_ids.size() + response_ids.size());
    }
    return longest;
}

}  // namespace

ResponseBatch make_response_batch(const std::vector<Completion>& completions, Id pad_token_id,
                                  LossOn loss_on) {
    const std::size_t seq_len = longest_completion(completions) - 1;  // T
    ResponseBatch batch;
    batch.input_ids = pad_token_id * xt::ones<Id>({completions.size(), seq_len});
    batch.targets = batch.input_ids;
    batch.response_mask = xt::zeros<Real>(batch.targets.shape());
    for (std::size_t b = 0; b < completions.size(); ++b) {
        std::vector<Id> ids = completions[b].prompt_ids;
        const std::size_t prompt_size = ids.size();
        ids.insert(ids.end(), completions[b].response_ids.begin(),
                   completions[b].response_ids.end());
        for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
            batch.input_ids(b, t) = ids[t];
            batch.targets(b, t) = ids[t + 1];
            const bool in_response = t + 1 >= prompt_size;
            batch.response_mask(b, t) = in_response || loss_on == LossOn::everything ? 1 : 0;
        }
    }
    return batch;
}

namespace {

void check_mask(const char* function, const Matrix& values, const Matrix& mask) {
    require(values.shape() == mask.shape(), "{}: a mask of {} does not fit values of {}",
            function, mask.shape(), values.shape());
}

}  // namespace

Vector sequence_log_probs(const Matrix& log_probs, const Matrix& response_mask) {
    check_mask("sequence_log_probs", log_probs, response_mask);
    const auto [batch_size, seq_len] = dims(log_probs);
    Vector sums = xt::zeros<Real>({batch_size});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            if (response_mask(b, t) != 0) sums(b) += log_probs(b, t);
    return sums;
}

Matrix sequence_log_probs_backward(const Matrix& response_mask, const Vector& output_gradient) {
    require(output_gradient.size() == response_mask.shape(0),
            "sequence_log_probs_backward: a gradient of {} does not fit a mask of {}",
            output_gradient.shape(), response_mask.shape());
    Matrix gradient = response_mask;  // (B, T)
    for (std::size_t b = 0; b < gradient.shape(0); ++b)
        for (std::size_t t = 0; t < gradient.shape(1); ++t)
            gradient(b, t) *= output_gradient(b);
    return gradient;
}

TokenLoss sft_loss(const Matrix& log_probs, const Matrix& response_mask) {
    check_mask("sft_loss", log_probs, response_mask);
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < log_probs.size(); ++i)
        if (response_mask.data()[i] != 0) {
            sum -= static_cast<double>(log_probs.data()[i]);
            ++count;
        }
    require(count > 0, "sft_loss: the mask selects no token");
    return {sum / count, response_mask * static_cast<Real>(-1 / count)};
}

}  // namespace llm
