// Chapter 13, file 5 of 10: the learning rate of each step.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// Cosine schedule with warm-up. The learning rate increases linearly to learning_rate during
// warmup_steps, then decreases to min_learning_rate at max_steps, following half a period of a
// cosine, and stays there. Source: Loshchilov and Hutter, 2017 ("SGDR"); llm.c,
// llmc/schedulers.h.
struct LRSchedule {
    Real learning_rate = Real(1e-3), min_learning_rate = Real(1e-4);
    std::size_t warmup_steps = 100, max_steps = 1000;
};

// The learning rate of a step, counted from 0. Throws ValueError unless warmup_steps is less
// than max_steps.
Real learning_rate_at(const LRSchedule& schedule, std::size_t step);

}  // namespace llm
