// Chapter 15, steps of the program: measured times.
#pragma once

#include <functional>
#include <string>

#include "chapters/15_fast/roofline.hpp"

namespace llm {

// Whether run times are measured, and the roofline that they are compared with. With
// --no-timing all times are shown as "-", since they differ from run to run.
struct Timing {
    bool enabled = true;
    Roofline roofline{};

    // Seconds of the fastest run; runs nothing and returns 0 if timing is disabled.
    double seconds(int runs, const std::function<void()>& function) const;
    std::string cell(double value, int decimals) const;
    std::string percent(double part, double whole) const;
};

}  // namespace llm
