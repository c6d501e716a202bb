#include "chapters/24_parallel/pipeline.hpp"

#include "tests/support/check.hpp"
#include "tests/support/parallel_helpers.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("tensor parallelism: the gradient on 1 to 4 ranks equals that of one process") {
    check_tensor_parallel(1e-5);
}

TEST_CASE("a pipeline of 1 to 3 stages: the gradient of one process, in both schedules") {
    check_pipeline(1e-5);
}

TEST_CASE("the bubble of both schedules is (p - 1) / (m + p - 1), and 1F1B keeps less") {
    for (const std::size_t p : {1, 2, 3, 4, 8})
        for (const std::size_t m : {1, 2, 4, 7, 16}) {
            std::vector<StageSchedule> gpipe(p, gpipe_schedule(m)), one(p);
            for (std::size_t stage = 0; stage < p; ++stage) {
                one[stage] = one_forward_one_backward_schedule(m, p, stage);
                CHECK(most_in_flight(one[stage]) == std::min(m, p - stage));
            }
            const double expected = double(p - 1) / double(m + p - 1);
            CHECK(bubble(run_times(gpipe, 1, 2)) == doctest::Approx(expected));
            CHECK(bubble(run_times(one, 1, 2)) == doctest::Approx(expected));
            CHECK(most_in_flight(gpipe[0]) == m);
        }
}

TEST_CASE("ring attention on 1 to 4 ranks: the gradient of one process") {
    check_context_parallel(1e-5);
}

}  // namespace
