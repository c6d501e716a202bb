// Chapter 13: the learning rate of each step.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// Cosine schedule with warm-up. The learning rate rises linearly to learning_rate in
// warmup_steps, then falls along half a cosine to min_learning_rate, which it reaches at
// max_steps. Source: Loshchilov and Hutter, 2017 ("SGDR"), with the warm-up of Vaswani et al.,
// 2017.
struct LRSchedule {
    Real learning_rate = Real(1e-3), min_learning_rate = Real(1e-4);
    std::size_t warmup_steps = 100, max_steps = 1000;
};

// The learning rate of a step, counted from 0. Throws ShapeError unless warmup_steps is less
// than max_steps.
Real learning_rate_at(const LRSchedule& schedule, std::size_t step);

}  // namespace llm
