// Predicted and measured times of a step on a mesh.
#pragma once

#include "common/parallel/communicator.hpp"

namespace llm {

// On two ranks: measures messages and the FLOPs of a rank, and prints, on rank 0, the time of a
// step on five meshes as mesh_time.hpp predicts it from them, beside the measured one.
void compare_step_times(Communicator& ranks);

}  // namespace llm
