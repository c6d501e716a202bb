// Work on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace llm {

std::size_t num_cores();

// Calls work(0) to work(count - 1), several at a time, and returns when all are done; what one
// of them throws is thrown here. Meanwhile matrix products take one core each, unless count is
// 1. after_each is told how many are done, by one thread at a time.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work,
                 const std::function<void(std::size_t done)>& after_each = {});

}  // namespace llm
