#include "chapters/13_training/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 13.1 — bias correction. Both moving averages start at 0. After n steps the weights
// of the gradients in a moving average add up to 1 - βⁿ, so it is divided by that sum.
void adam_step(Adam& adam, Vector& parameter, const Vector& gradient, Real learning_rate) {
    const Real n = static_cast<Real>(++adam.step_count);
    const Real bias_correction1 = 1 - std::pow(adam.beta1, n);
    const Real bias_correction2 = 1 - std::pow(adam.beta2, n);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        const Real g = gradient(i);
        Real& m = adam.exp_avg(i);
        Real& v = adam.exp_avg_sq(i);
        m = adam.beta1 * m + (1 - adam.beta1) * g;
        v = adam.beta2 * v + (1 - adam.beta2) * g * g;
        parameter(i) -= learning_rate * (m / bias_correction1) /
                        (std::sqrt(v / bias_correction2) + adam.eps);
    }
}

// Exercise 13.2 — the target of a token is the token after it. If the targets equal the inputs,
// the model learns to copy its input.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,
               std::size_t seq_len) {
    Batch batch{xt::zeros<Id>({starts.size(), seq_len}),
                xt::zeros<Id>({starts.size(), seq_len})};
    for (std::size_t b = 0; b < starts.size(); ++b) {
        const Id* sequence = tokens.data() + starts[b];
        std::copy_n(sequence, seq_len, batch.input_ids.data() + b * seq_len);
        std::copy_n(sequence + 1, seq_len, batch.targets.data() + b * seq_len);
    }
    return batch;
}

// Exercise 13.3 — the names of norm weights end with ".weight", too. Matrices, including the
// embedding, have two axes; norm weights and biases have one.
bool has_weight_decay([[maybe_unused]] const std::string& name, std::size_t num_axes) {
    return num_axes > 1;
}

// Exercise 13.4 — the mean of the batches' means is the mean over all tokens only if all
// batches have the same number of tokens. Each mean is weighted by its batch's number of
// tokens.
BatchGradient accumulate_gradients(const std::vector<BatchGradient>& batches) {
    BatchGradient sum{0, xt::zeros<Real>(batches.at(0).gradient.shape()), 0};
    for (const BatchGradient& batch : batches) sum.num_tokens += batch.num_tokens;
    for (const BatchGradient& batch : batches) {
        const double weight = double(batch.num_tokens) / double(sum.num_tokens);
        sum.loss += weight * batch.loss;
        sum.gradient = sum.gradient + batch.gradient * static_cast<Real>(weight);
    }
    return sum;
}

// Exercise 13.5 — in the decay phase, the learning rate is proportional to the number of steps
// that are left.
Real wsd_learning_rate(const WSDSchedule& schedule, std::size_t step) {
    const auto& [learning_rate, warmup_steps, decay_steps, max_steps] = schedule;
    if (step < warmup_steps)
        return learning_rate * static_cast<Real>(step + 1) / static_cast<Real>(warmup_steps);
    const std::size_t steps_left = step < max_steps ? max_steps - step : 0;
    if (steps_left >= decay_steps) return learning_rate;
    return learning_rate * static_cast<Real>(steps_left) / static_cast<Real>(decay_steps);
}

}  // namespace exercise
