// Ranks that are processes, on one machine or many, connected by MPI. Compiled where there is
// an MPI library (Debian: libopenmpi-dev).
#pragma once

#include <memory>

#include "common/parallel/communicator.hpp"

namespace llm {

// From MPI_Init to MPI_Finalize: one object a program. A program that mpirun did not start is
// one rank. If an exception destroys the object, MPI ends all ranks, which would otherwise wait
// for this one.
class MpiRanks {
 public:
    MpiRanks();
    ~MpiRanks();
    MpiRanks(const MpiRanks&) = delete;
    MpiRanks& operator=(const MpiRanks&) = delete;

    Communicator& world() { return *world_; }

 private:
    std::unique_ptr<Communicator> world_;
    int num_exceptions_;
};

}  // namespace llm
