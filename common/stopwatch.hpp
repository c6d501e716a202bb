// How long something takes on this machine, now.
#pragma once

#include <functional>

namespace llm {

// Seconds of the fastest of so many runs: the one that was disturbed least.
double fastest_seconds(int runs, const std::function<void()>& work);

}  // namespace llm
