#include "chapters/28_model_parallel/pipeline.hpp"

#include "tests/support/check.hpp"
#include "tests/support/model_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("a pipeline of 1 to 3 stages: the gradient of one process, in both schedules") {
    check_pipeline(1e-5);
}

TEST_CASE("a pipeline whose stages are tensor parallel: the gradient of one process") {
    check_pipeline_of_tensor_ranks(1e-5);
}

TEST_CASE("the bubble of both schedules is (p - 1) / (m + p - 1), and 1F1B keeps less") {
    for (const std::size_t p : {1, 2, 3, 4, 8})
        for (const std::size_t m : {1, 2, 4, 7, 16}) {
            std::vector<StageSchedule> gpipe(p, gpipe_schedule(m)), one(p);
            for (std::size_t stage = 0; stage < p; ++stage) {
                one[stage] = one_forward_one_backward_schedule(m, p, stage);
                CHECK(one[stage].size() == 2 * m);
                CHECK(most_in_flight(one[stage]) == std::min(m, p - stage));
            }
            const double expected = double(p - 1) / double(m + p - 1);
            CHECK(bubble(run_times(gpipe, 1, 2)) == doctest::Approx(expected));
            CHECK(bubble(run_times(one, 1, 2)) == doctest::Approx(expected));
            CHECK(most_in_flight(gpipe[0]) == m);
        }
}

TEST_CASE("1F1B: stage 1 of 3 runs one forward pass ahead") {
    const StageAction f0{Pass::forward, 0}, f1{Pass::forward, 1}, f2{Pass::forward, 2};
    const StageAction b0{Pass::backward, 0}, b1{Pass::backward, 1}, b2{Pass::backward, 2};
    CHECK(one_forward_one_backward_schedule(3, 3, 0) == StageSchedule{f0, f1, f2, b0, b1, b2});
    CHECK(one_forward_one_backward_schedule(3, 3, 1) == StageSchedule{f0, f1, b0, f2, b1, b2});
    CHECK(one_forward_one_backward_schedule(3, 3, 2) == StageSchedule{f0, b0, f1, b1, f2, b2});
}

TEST_CASE("a pipeline with more stages than layers is an error") {
    const Model model = uneven_model(uneven_config(true));
    run_ranks(3, [&](Communicator& ranks) {
        CHECK_THROWS_WITH_AS(pipeline_stage(model, ranks), "pipeline: 3 stages for 2 layers",
                             ValueError);
    });
}

}  // namespace
