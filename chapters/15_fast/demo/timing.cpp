#include "chapters/15_fast/demo/timing.hpp"

#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {

double Timing::seconds(int runs, const std::function<void()>& function) const {
    return enabled ? fastest_seconds(runs, function) : 0;
}

std::string Timing::cell(double value, int decimals) const {
    return enabled ? fixed(value, decimals) : "-";
}

std::string Timing::percent(double part, double whole) const {
    return enabled ? fixed(100 * part / whole, part < 0.1 * whole ? 1 : 0) : "-";
}

}  // namespace llm
