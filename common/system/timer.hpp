// Run times and memory.
#pragma once

#include <functional>

namespace llm {

// Runs the function several times and returns the seconds of the fastest run, which is least
// disturbed by other programs; at least one step of the clock.
double fastest_seconds(int runs, const std::function<void()>& function);

// Seconds since the first call.
double elapsed_seconds();

// The most memory that the program has used so far (resident set size), in megabytes.
double peak_megabytes();

}  // namespace llm
