#include "common/system/timer.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include <sys/resource.h>

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Nanoseconds; in browsers up to a millisecond.
double clock_step() {
    const Clock::time_point start = Clock::now();
    double seconds = 0;
    while (seconds == 0) seconds = seconds_since(start);
    return seconds;
}

}  // namespace

double fastest_seconds(int runs, const std::function<void()>& function) {
    static const double step = clock_step();
    double fastest = std::numeric_limits<double>::infinity();
    for (int run = 0; run < runs; ++run) {
        const Clock::time_point start = Clock::now();
        function();
        fastest = std::min(fastest, seconds_since(start));
    }
    return std::max(fastest, step);
}

double elapsed_seconds() {
    static const Clock::time_point start = Clock::now();
    return seconds_since(start);
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
