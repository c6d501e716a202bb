// Chapter 28, file 10 of 10: how long a step on a mesh takes, estimated.
#pragma once

#include "chapters/28_model_parallel/mesh_traffic.hpp"

namespace llm {

// The time of a message is alpha + beta * bytes: Hockney, "The communication challenge for MPP"
// (1994), section 3.
struct Network {
    double alpha;  // seconds for each message
    double beta;   // seconds for each byte
    double seconds(const Traffic& traffic) const {
        return alpha * double(traffic.num_messages) + beta * double(traffic.num_bytes);
    }
};
// Fits alpha and beta to measured messages: the smallest sum of squares of relative errors, so
// that short messages count as much as long ones.
struct TimedMessage {
    double num_bytes, seconds;
};
Network fit_network(const std::vector<TimedMessage>& messages);

// Ranks of neighboring numbers share a machine.
struct Cluster {
    double flops_per_second;  // of one rank, as reached in training
    std::size_t ranks_per_machine;
    Network inside, between;  // of a machine; between machines
};

// Seconds of a step. Nothing is sent while a rank computes, as in the functions of this
// chapter.
struct StepTime {
    double compute = 0, bubble = 0;  // of the slowest stage; waiting for the other stages
    double data = 0, pipeline = 0, context = 0, tensor = 0;  // communication

    double total() const { return compute + bubble + data + pipeline + context + tensor; }
};
// m micro-batches pass through stages that take t_s for each: sum of t_s + (m - 1) max t_s.
// Then come the sums that each step needs once.
StepTime step_time(const MeshPlan& plan, const Cluster& cluster);

}  // namespace llm
