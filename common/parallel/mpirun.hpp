// Programs that mpirun starts as ranks. (mpi_ranks.hpp connects them.)
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace llm {

// Whether mpirun (of Open MPI or MPICH) or Slurm's srun has started this process as a rank.
bool started_as_rank();
// The number of ranks that it says it has started; 0 if it does not say.
std::size_t started_ranks();

// A command that starts this program, which has these arguments, as ranks of this machine. With
// Open MPI: also more ranks than cores, of which none is bound to a core, and also as root.
std::vector<std::string> mpirun_command(std::size_t num_ranks, int argc, char** argv);

// Runs the command. The first Ctrl-C or SIGTERM is passed on to all ranks as SIGUSR1, since
// mpirun would end them within two seconds after SIGINT; a second one ends them at once.
// Throws std::runtime_error, with one line that says why, if they fail: what the first of them
// has written after "NAME: ", or which one a signal has ended, and the advice. Exits with code
// 130 if the ranks end without a word after Ctrl-C.
void run_mpirun(const std::vector<std::string>& command, const std::string& name,
                const std::string& advice_after_signal);

// A rank other than 0 prints nothing; errors only where they are its own.
void print_nothing();
void print_errors();

// Lets rank 0 report first what all ranks know, and end them.
void wait_a_second();

}  // namespace llm
