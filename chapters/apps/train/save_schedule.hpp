// When a run saves its next checkpoint.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "common/system/timer.hpp"

namespace llm::runs {

struct SaveSchedule {
    std::size_t save_steps = 0;  // 0: after about a minute, for at most a twentieth of the time
    double saved_at = elapsed_seconds(), seconds_per_save = 0;

    bool is_due(std::size_t num_steps_done) const {
        if (save_steps > 0) return num_steps_done % save_steps == 0;
        return elapsed_seconds() - saved_at > std::max(60.0, 20 * seconds_per_save);
    }
    void save(const std::function<void()>& write) {
        const double start = elapsed_seconds();
        write();
        saved_at = elapsed_seconds();
        seconds_per_save = saved_at - start;
    }
};

}  // namespace llm::runs
