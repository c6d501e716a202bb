// The options --ranks, --zero, --tensor, --pipeline and --context, and this process as one of
// the ranks.
#pragma once

#include "chapters/apps/train/mesh_strategy.hpp"
#include "common/system/options.hpp"

namespace llm::runs {

struct RankOptions {
    std::size_t num_ranks = 0, zero = 0;  // 0 ranks: one process
    ModelAxes axes;
};
void add_rank_options(Options& options, RankOptions& given);

// From the start of a program to its end. mpirun has started it, or it starts mpirun, or it is
// alone.
class RankProcess {
 public:
    RankProcess();
    ~RankProcess();

    bool is_main() const;  // rank 0, or alone

    // The strategy of this process. With --ranks, a process that is alone starts the ranks with
    // the same arguments, waits for them and exits. Throws ValueError or std::runtime_error.
    std::shared_ptr<TrainingStrategy> strategy(const RankOptions& given, const Options& options,
                                               const TrainingTask& task, int argc, char** argv);
    // What main returns. Ends all ranks if the code of this one is not 0.
    int end(int code) const;

 private:
    struct Group;  // of MPI
    std::unique_ptr<Group> group_;
};

}  // namespace llm::runs
