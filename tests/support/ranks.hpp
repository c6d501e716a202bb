// Runs a test on ranks: threads (thread_ranks.cpp), or the processes that mpirun started
// (mpi_ranks.cpp).
#pragma once

#include <functional>

#include "common/parallel/communicator.hpp"

namespace llm {

void for_ranks(const std::function<void(Communicator&)>& body);

}  // namespace llm
