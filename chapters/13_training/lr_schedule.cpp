#include "chapters/13_training/lr_schedule.hpp"

#include <cmath>
#include <numbers>

namespace llm {

Real learning_rate_at(const LRSchedule& schedule, std::size_t step) {
    const auto& [learning_rate, min_learning_rate, warmup_steps, max_steps] = schedule;
    require(warmup_steps < max_steps, "lr_schedule: {} warm-up steps do not fit into {} steps",
            warmup_steps, max_steps);

    // Linear warm-up.
    if (step < warmup_steps)
        return learning_rate * static_cast<Real>(step + 1) / static_cast<Real>(warmup_steps);

    // Cosine decay: the coefficient decreases from 1 to 0.
    const double progress =
        std::min(1.0, double(step - warmup_steps) / double(max_steps - warmup_steps));
    const double coefficient = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return min_learning_rate +
           static_cast<Real>(coefficient) * (learning_rate - min_learning_rate);
}

}  // namespace llm
