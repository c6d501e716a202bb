#include "common/system/timer.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include <sys/resource.h>

namespace llm {

double fastest_seconds(int runs, const std::function<void()>& function) {
    using Clock = std::chrono::steady_clock;
    double fastest = std::numeric_limits<double>::infinity();
    for (int run = 0; run < runs; ++run) {
        const Clock::time_point start = Clock::now();
        function();
        fastest =
            std::min(fastest, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return fastest;
}

double elapsed_seconds() {
    using Clock = std::chrono::steady_clock;
    static const Clock::time_point start = Clock::now();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double peak_megabytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    return static_cast<double>(usage.ru_maxrss) / 1e6;
#else
    return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
#endif
}

}  // namespace llm
