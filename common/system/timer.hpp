// How long something takes on this machine, now.
#pragma once

#include <functional>

namespace llm {

// Seconds of the fastest of so many runs: the one that was disturbed least.
double fastest_seconds(int runs, const std::function<void()>& work);

// Seconds since the first call, and the most memory it has used so far, in MB.
double seconds_so_far();
double peak_megabytes();

}  // namespace llm
