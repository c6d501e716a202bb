#include "chapters/13_training/lr_schedule.hpp"

#include <cmath>
#include <numbers>

namespace llm {

Real learning_rate_at(const LRSchedule& schedule, std::size_t step) {
    const auto& [learning_rate, min_learning_rate, warmup_steps, max_steps] = schedule;
    require(warmup_steps < max_steps, "lr_schedule: {} warm-up steps do not fit into {} steps",
            warmup_steps, max_steps);

    // Warm-up: a straight line.
    if (step < warmup_steps)
        return learning_rate * static_cast<Real>(step + 1) / static_cast<Real>(warmup_steps);

    // Decay: (1 + cos) / 2 falls from 1 to 0 between the end of warm-up and max_steps.
    const double progress =
        std::min(1.0, double(step - warmup_steps) / double(max_steps - warmup_steps));
    const double coefficient = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return min_learning_rate +
           static_cast<Real>(coefficient) * (learning_rate - min_learning_rate);
}

}  // namespace llm
