#include "common/stopwatch.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace llm {

double fastest_seconds(int runs, const std::function<void()>& work) {
    using Clock = std::chrono::steady_clock;
    double fastest = std::numeric_limits<double>::infinity();
    for (int run = 0; run < runs; ++run) {
        const Clock::time_point start = Clock::now();
        work();
        fastest =
            std::min(fastest, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return fastest;
}

}  // namespace llm
