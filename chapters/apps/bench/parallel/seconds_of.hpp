// The time of a function that all ranks call.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "common/parallel/communicator.hpp"

namespace llm {

// The median of the seconds between two barriers, after a call that does not count.
inline double seconds_of(Communicator& ranks, const std::function<void()>& function,
                         std::size_t num_repetitions = 15) {
    std::vector<double> seconds(num_repetitions);
    function();
    for (double& time : seconds) {
        ranks.barrier();
        const auto begin = std::chrono::steady_clock::now();
        function();
        ranks.barrier();
        time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[num_repetitions / 2];
}

}  // namespace llm
