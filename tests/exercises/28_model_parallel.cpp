#include "chapters/28_model_parallel/exercise.hpp"

#include <cmath>

#include "tests/support/check.hpp"

using namespace exercise;

TEST_CASE("28.1 predict: time lost in a pipeline, and micro-batches that a stage keeps") {
    std::vector<StageSchedule> gpipe(4, gpipe_schedule(12)), one(4);
    for (std::size_t stage = 0; stage < 4; ++stage)
        one[stage] = one_forward_one_backward_schedule(12, 4, stage);
    const Id percent = static_cast<Id>(std::lround(100 * bubble(run_times(one, 1, 2))));
    INFO("counted in the schedules of the lesson");
    CHECK(predicted_pipeline() == (IdVector{percent, static_cast<Id>(most_in_flight(gpipe[0])),
                                            static_cast<Id>(most_in_flight(one[0]))}));
}
