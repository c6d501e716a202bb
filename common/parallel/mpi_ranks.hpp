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
    std::size_t num_on_machine() const;  // ranks of the machine of this rank

    // Ends all ranks. mpirun then exits with this code, which is not 0.
    [[noreturn]] void abort(int code) const;

 private:
    std::unique_ptr<Communicator> world_;
    int num_exceptions_;
};

}  // namespace llm
