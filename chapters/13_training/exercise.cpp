#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 13.1 — find the bug. After some hundred steps each step is as large as Adam's. The
// first steps are not.
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

// Exercise 13.2 — find the bug. The loss falls to almost 0 within minutes, and the model
// generates one letter again and again.
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

// Exercise 13.3 — find the bug. Some weights shrink at every step, although their gradient is 0
// and a good value for them is about 1.
bool has_weight_decay(const std::string& name, [[maybe_unused]] std::size_t num_axes) {
    return name.ends_with(".weight");
}

// Exercise 13.4 — write accumulate_gradients: from several batches, the mean loss over all
// their tokens, its gradient, and the number of tokens. The batches differ in their numbers of
// tokens.
BatchGradient accumulate_gradients([[maybe_unused]] const std::vector<BatchGradient>& batches) {
    TODO("accumulate_gradients");
}

// Exercise 13.5 — write wsd_learning_rate: a linear warm-up as in the lesson, a constant
// learning rate, and in the last decay_steps a straight line from there towards 0, which it
// would reach at max_steps. (MiniCPM, Hu et al., 2024: WSD, "warmup, stable, decay".)
Real wsd_learning_rate([[maybe_unused]] const WSDSchedule& schedule,
                       [[maybe_unused]] std::size_t step) {
    TODO("wsd_learning_rate");
}

}  // namespace exercise
