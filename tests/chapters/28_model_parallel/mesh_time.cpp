#include "chapters/28_model_parallel/mesh_time.hpp"

#include <algorithm>
#include <array>

#include "tests/support/check.hpp"
#include "tests/support/model_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("fit_network finds alpha and beta again, and their mean where measurements differ") {
    const Network network = fit_network(
        {{1000, 2e-6 + 1000 * 3e-9}, {50, 2e-6 + 50 * 3e-9}, {1e6, 2e-6 + 1e6 * 3e-9}});
    CHECK(network.alpha / 2e-6 == doctest::Approx(1));
    CHECK(network.beta / 3e-9 == doctest::Approx(1));
    const Network noisy = fit_network({{0, 0.9e-6}, {0, 1.1e-6}, {1e6, 1.9e-3}, {1e6, 2.1e-3}});
    CHECK(noisy.alpha / 1e-6 == doctest::Approx(1).epsilon(0.02));
    CHECK(noisy.beta / 2e-9 == doctest::Approx(1).epsilon(0.02));
    // The determinant of these is 3e-11, after rounding.
    CHECK_THROWS_WITH_AS(fit_network({{3, 0.7}, {3, 0.1}}),
                         "fit_network: 2 messages, of which two sizes must differ", ValueError);
    CHECK_THROWS_WITH_AS(fit_network({}),
                         "fit_network: 0 messages, of which two sizes must differ", ValueError);
}

// 6 sequences in micro-batches of 2, and 3 layers.
MeshPlan timed_step(const MeshSizes& sizes) {
    MeshPlan plan{uneven_config(true), sizes, 6, 2, 8};
    plan.config.num_hidden_layers = 3;
    return plan;
}
double flops(const MeshPlan& plan, std::size_t rank) { return training_flops(plan, rank); }

TEST_CASE("step time without a network: compute, and the bubble of uneven stages") {
    const Cluster free{1e6, 8, {0, 0}, {0, 0}};
    CHECK(step_time(timed_step({}), free).total() ==
          doctest::Approx(flops(timed_step({}), 0) / 1e6));
    // Stages of 2 layers and of 1 layer with the head.
    const MeshPlan plan = timed_step({1, 2, 1, 1});
    const StepTime time = step_time(plan, free);
    const double first = flops(plan, 0) / 1e6, last = flops(plan, 1) / 1e6;
    REQUIRE(first > last);
    CHECK(time.compute == doctest::Approx(first));
    CHECK(time.bubble == doctest::Approx(last / 3));
    CHECK(time.total() == doctest::Approx(first + last / 3));
}

TEST_CASE("step time of equal stages: the bubble is (p - 1) / (m + p - 1)") {
    MeshPlan plan = timed_step({1, 3, 1, 1});
    plan.config.vocab_size = 1;  // a head that costs next to nothing
    const StepTime time = step_time(plan, {1e6, 8, {0, 0}, {0, 0}});
    CHECK(time.bubble / time.total() == doctest::Approx(2.0 / 5).epsilon(0.02));
}

TEST_CASE("step time: each axis pays for its messages, on its network") {
    const MeshPlan plan = timed_step({2, 2, 1, 2});
    const Network slow{0, 1e-3}, fast{0, 1e-6};
    const auto bytes = [&](std::size_t rank, MeshAxis axis, Traffic::When when) {
        double sum = 0;
        for (const Traffic& traffic : traffic_of_rank(plan, rank))
            if (traffic.axis == axis && traffic.when == when) sum += double(traffic.num_bytes);
        return sum;
    };
    constexpr auto once = Traffic::When::once, each = Traffic::When::each_micro_batch;
    // Two ranks a machine: tensor ranks share one, stages and data ranks do not.
    const StepTime time = step_time(plan, {1e30, 2, fast, slow});
    const double first = bytes(0, MeshAxis::data, once), last = bytes(2, MeshAxis::data, once);
    REQUIRE(first > last);  // 2 layers of 3
    CHECK(time.data == doctest::Approx(1e-3 * first));
    CHECK(1e6 * time.tensor ==
          doctest::Approx(bytes(0, MeshAxis::tensor, each) + bytes(0, MeshAxis::tensor, once)));
    CHECK(time.pipeline == doctest::Approx(1e-3 * (bytes(0, MeshAxis::pipeline, each) +
                                                   bytes(0, MeshAxis::pipeline, once))));
    CHECK(time.context == 0);
    const StepTime one_machine = step_time(plan, {1e30, 8, fast, slow});
    CHECK(one_machine.data == doctest::Approx(time.data / 1000));

    // 2 (d - 1) messages of the flattened gradient.
    const StepTime latency = step_time(plan, {1e30, 1, {0, 0}, {1, 0}});
    CHECK(latency.data == doctest::Approx(2));
}

// The formula of step_time, from the messages of each stage.
double expected_seconds(const MeshPlan& plan, double flops_per_second, double beta) {
    const auto m = double(micro_batch_sizes(plan, 0).size());
    double sum = 0, slowest = 0, last = 0;
    for (const std::size_t rank : ranks_of_axis(plan.sizes, 0, MeshAxis::pipeline)) {
        double each = training_flops(plan, rank) / flops_per_second / m, once = 0;
        for (const Traffic& traffic : traffic_of_rank(plan, rank)) {
            const double seconds = beta * double(traffic.num_bytes);
            if (traffic.when == Traffic::When::once)
                once += seconds;
            else
                each += seconds / m;
        }
        sum += each;
        slowest = std::max(slowest, each);
        last = std::max(last, once);
    }
    return sum + (m - 1) * slowest + last;
}

// Alone, and with each of the other axes.
constexpr std::array pipelines = {MeshSizes{1, 3, 1, 1}, MeshSizes{2, 2, 1, 1},
                                  MeshSizes{1, 2, 2, 1}, MeshSizes{1, 2, 1, 2},
                                  MeshSizes{2, 2, 2, 2}};

TEST_CASE(
    "step time: of the slowest stage, whether it computes or sends, and of the longest sums") {
    for (const bool tied : {false, true})
        for (const std::size_t num_layers : {3, 4})
            for (const MeshSizes& sizes : pipelines)
                for (const double flops_per_second : {1e6, 1e9, 1e30}) {
                    CAPTURE(sizes.num_ranks());
                    CAPTURE(num_layers);
                    MeshPlan plan = timed_step(sizes);
                    plan.config = uneven_config(tied);
                    plan.config.num_hidden_layers = num_layers;
                    const Network network{0, 1e-6};
                    CHECK(step_time(plan, {flops_per_second, 1, network, network}).total() ==
                          doctest::Approx(expected_seconds(plan, flops_per_second, 1e-6)));
                }
}

TEST_CASE("step time of context ranks: the messages of each micro-batch and of the end") {
    const MeshPlan plan = timed_step({1, 1, 2, 1});
    double num_bytes = 0, num_messages = 0;
    for (const Traffic& traffic : traffic_of_rank(plan, 0)) {
        num_bytes += double(traffic.num_bytes);
        num_messages += double(traffic.num_messages);
    }
    const StepTime time = step_time(plan, {1e30, 1, {0, 0}, {2, 1e-3}});
    CHECK(time.context == doctest::Approx(2 * num_messages + 1e-3 * num_bytes));
    CHECK(time.total() == doctest::Approx(time.context));
    CHECK(step_time(plan, {1e30, 2, {0, 0}, {2, 1e-3}}).context == 0);  // on one machine
}

}  // namespace
