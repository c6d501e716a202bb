// Chapter 28, file 9 of 10: what each rank of a mesh sends in a step of training.
#pragma once

#include <string>

#include "chapters/28_model_parallel/mesh_plan.hpp"

namespace llm {

// What a rank sends in a step, of one kind. The bytes are those that its group on this axis
// counts: of messages, or of collective functions of the library.
struct Traffic {
    MeshAxis axis;
    std::size_t receiver;  // of messages: the next rank of the ring, or a neighboring stage
    std::string what;
    enum class Kind { messages, collective };
    Kind kind;
    enum class When { each_micro_batch, once };
    When when;
    std::uint64_t num_bytes = 0;
    std::uint64_t num_messages = 0;  // one after another, each when the one before has arrived
};
// Kinds of which this rank sends nothing are left out.
std::vector<Traffic> traffic_of_rank(const MeshPlan& plan, std::size_t rank);

}  // namespace llm
