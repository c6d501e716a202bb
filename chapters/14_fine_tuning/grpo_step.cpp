#include "chapters/14_fine_tuning/grpo_step.hpp"

#include <algorithm>

#include "chapters/14_fine_tuning/answers.hpp"

namespace llm {

Vector exact_match_rewards(const Rollouts& rollouts,
                           const std::vector<std::string>& correct_answers,
                           const std::function<std::string(const std::vector<Id>&)>& decode) {
    const std::size_t batch_size = rollouts.completions.size();
    const std::size_t num_groups = correct_answers.size();
    require(num_groups > 0 && batch_size % num_groups == 0,
            "exact_match_rewards: {} answers are not a multiple of {} groups", batch_size,
            num_groups);
    Vector rewards = xt::zeros<Real>({batch_size});
    for (std::size_t i = 0; i < batch_size; ++i) {
        if (!rollouts.finished[i]) continue;
        std::vector<Id> ids = rollouts.completions[i].response_ids;
        ids.pop_back();  // the stop token
        const std::string& answer = correct_answers[i / (batch_size / num_groups)];
        rewards(i) = static_cast<Real>(exact_match_reward(answer, decode(ids)));
    }
    return rewards;
}

GrpoMetrics grpo_step(FineTuner& tuner, const Model& reference, const Rollouts& rollouts,
                      const Vector& rewards, const GrpoArguments& args,
                      std::vector<Model>& gradients) {
    const Vector advantages = group_advantages(rewards, args.group_size, args.scale_rewards);
    const Matrix reference_log_probs = batch_log_probs(reference, rollouts.batch);  // (B, T)
    GrpoLoss last;
    for (std::size_t update = 0; update < args.num_updates; ++update) {
        const auto loss = [&](const Matrix& log_probs) {
            last = grpo_loss(log_probs, rollouts.old_log_probs, reference_log_probs,
                             rollouts.batch.response_mask, advantages, args.loss);
            return TokenLoss{last.loss, last.gradient};
        };
        fine_tuning_step(tuner, rollouts.batch, loss, args.learning_rate, args.max_grad_norm,
                         gradients);
    }
    std::size_t groups = 0;
    for (std::size_t i = 0; i < advantages.size(); i += args.group_size) {
        const auto first = advantages.begin() + std::ptrdiff_t(i);
        groups += std::any_of(first, first + std::ptrdiff_t(args.group_size),
                              [](Real advantage) { return advantage != 0; });
    }
    const double mean = double(xt::sum<Real>(rewards)()) / double(rewards.size());
    return {mean, groups, last.clip_fraction, last.kl};
}

}  // namespace llm
