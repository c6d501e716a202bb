#include "chapters/28_model_parallel/mesh_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace llm {
namespace {

// The seconds of a rank for each micro-batch, and those of the sums once a step, by axis.
struct RankTime {
    double compute;
    std::array<double, 4> each{}, once{};  // in the order of MeshAxis

    double micro_batch() const { return compute + sum(each); }
    double sums() const { return sum(once); }
    static double sum(const std::array<double, 4>& seconds) {
        return seconds[0] + seconds[1] + seconds[2] + seconds[3];
    }
};

// The ranks of an axis are on one machine, or the network between machines is used.
const Network& network_of(const MeshPlan& plan, const Cluster& cluster, std::size_t rank,
                          MeshAxis axis) {
    const std::vector<std::size_t> ranks = ranks_of_axis(plan.sizes, rank, axis);
    return ranks.front() / cluster.ranks_per_machine == ranks.back() / cluster.ranks_per_machine
               ? cluster.inside
               : cluster.between;
}

RankTime time_of_rank(const MeshPlan& plan, const Cluster& cluster, std::size_t rank) {
    const auto m = double(micro_batch_sizes(plan, 0).size());
    RankTime time{training_flops(plan, rank) / cluster.flops_per_second / m};
    for (const Traffic& traffic : traffic_of_rank(plan, rank)) {
        const double seconds = network_of(plan, cluster, rank, traffic.axis).seconds(traffic);
        if (traffic.when == Traffic::When::once)
            time.once[std::size_t(traffic.axis)] += seconds;
        else
            time.each[std::size_t(traffic.axis)] += seconds / m;
    }
    return time;
}

}  // namespace

Network fit_network(const std::vector<TimedMessage>& messages) {
    // One size does not determine both. (After rounding, its determinant may not be 0.)
    require(std::any_of(messages.begin(), messages.end(),
                        [&](const TimedMessage& message) {
                            return message.num_bytes != messages.front().num_bytes;
                        }),
            "fit_network: {} messages, of which two sizes must differ", messages.size());
    // Minimize the sum of (alpha / t + beta * bytes / t - 1)^2: two linear equations.
    double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
    for (const auto& [num_bytes, seconds] : messages) {
        const double a = 1 / seconds, b = num_bytes / seconds;
        aa += a * a;
        ab += a * b;
        bb += b * b;
        a1 += a;
        b1 += b;
    }
    const double determinant = aa * bb - ab * ab;
    return {(a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant};
}

StepTime step_time(const MeshPlan& plan, const Cluster& cluster) {
    std::vector<RankTime> stages;
    for (const std::size_t rank : ranks_of_axis(plan.sizes, 0, MeshAxis::pipeline))
        stages.push_back(time_of_rank(plan, cluster, rank));
    const auto largest = [&](double (RankTime::*time)() const) {
        return *std::max_element(
            stages.begin(), stages.end(),
            [&](const RankTime& a, const RankTime& b) { return (a.*time)() < (b.*time)(); });
    };
    const RankTime slowest = largest(&RankTime::micro_batch), last = largest(&RankTime::sums);

    const auto m = double(micro_batch_sizes(plan, 0).size());
    StepTime time;
    time.compute = m * slowest.compute;
    for (const RankTime& stage : stages) time.bubble += stage.micro_batch();
    time.bubble -= slowest.micro_batch();
    const auto on_axis = [&](MeshAxis axis) {
        return m * slowest.each[std::size_t(axis)] + last.once[std::size_t(axis)];
    };
    time.data = on_axis(MeshAxis::data);
    time.pipeline = on_axis(MeshAxis::pipeline);
    time.context = on_axis(MeshAxis::context);
    time.tensor = on_axis(MeshAxis::tensor);
    return time;
}

}  // namespace llm
