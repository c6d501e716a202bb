#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 13.1 — find the bug. The first updates have the wrong size. After some hundred steps
// the updates equal Adam's.
void adam_step(Adam& adam, Vector& parameter, const Vector& gradient, Real learning_rate) {
    ++adam.step_count;
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        const Real g = gradient(i);
        Real& m = adam.exp_avg(i);
        Real& v = adam.exp_avg_sq(i);
        m = adam.beta1 * m + (1 - adam.beta1) * g;
        v = adam.beta2 * v + (1 - adam.beta2) * g * g;
        parameter(i) -= learning_rate * m / (std::sqrt(v) + adam.eps);
    }
}

// Exercise 13.2 — find the bug. The loss decreases to almost 0 within minutes, and the model
// repeats the last letter of the prompt.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,
               std::size_t seq_len) {
    Batch batch{xt::zeros<Id>({starts.size(), seq_len}),
                xt::zeros<Id>({starts.size(), seq_len})};
    for (std::size_t b = 0; b < starts.size(); ++b) {
        const Id* sequence = tokens.data() + starts[b];
        std::copy_n(sequence, seq_len, batch.input_ids.data() + b * seq_len);
        std::copy_n(sequence, seq_len, batch.targets.data() + b * seq_len);
    }
    return batch;
}

// Exercise 13.3 — find the bug. Norm weights decay toward 0, although their gradient is 0.
bool has_weight_decay(const std::string& name, [[maybe_unused]] std::size_t num_axes) {
    return name.ends_with(".weight");
}

// Exercise 13.4 — write accumulate_gradients: it returns the mean loss over the tokens of all
// batches, the gradient of that loss, and the total number of tokens. The batches have
// different numbers of tokens.
BatchGradient accumulate_gradients([[maybe_unused]] const std::vector<BatchGradient>& batches) {
    TODO("accumulate_gradients");
}

// Exercise 13.5 — write wsd_learning_rate: a linear warm-up as in the lesson, a constant
// learning rate, and in the last decay_steps steps a linear decay, which reaches 0 at
// max_steps. Source: MiniCPM (Hu et al., 2024), the WSD (warmup-stable-decay) schedule.
Real wsd_learning_rate([[maybe_unused]] const WSDSchedule& schedule,
                       [[maybe_unused]] std::size_t step) {
    TODO("wsd_learning_rate");
}

}  // namespace exercise
