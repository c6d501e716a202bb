#include "chapters/apps/train/rank_process.hpp"

#include <cstdlib>

#include "common/output/show.hpp"
#include "common/parallel/mpirun.hpp"
#include "common/system/parallel.hpp"
#ifdef LLM_MPI
#include "common/parallel/mpi_ranks.hpp"
#endif

namespace llm::runs {
namespace {

void check_options(const RankOptions& given, const Options& options) {
    for (const char* name : {"--zero", "--tensor", "--pipeline", "--context"})
        require(started_as_rank() || given.num_ranks > 0 || !options.given(name),
                "{} needs --ranks", name);
    if (!started_as_rank() && given.num_ranks == 0) return;
#ifndef LLM_MPI
    throw ValueError(
        "--ranks needs MPI: apt-get install libopenmpi-dev openmpi-bin, then "
        "cmake build && cmake --build build; ./learn train does it itself");
#endif
    for (const char* name : {"--only", "--step"})
        require(!options.given(name), "--ranks excludes {}", name);
}

}  // namespace

void add_rank_options(Options& options, RankOptions& given) {
    options.count("--ranks", given.num_ranks, 1, 1024,
                  "number of processes, among which each step is divided");
    options.count("--zero", given.zero, 0, 3,
                  "what each rank has only a shard of: 1 moving averages, 2 also gradients, 3 "
                  "also parameters");
    options.count("--tensor", given.axes.tensor, 1, 1024, "ranks that share each layer");
    options.count("--pipeline", given.axes.pipeline, 1, 1024,
                  "ranks with some of the layers each");
    options.count("--context", given.axes.context, 1, 1024,
                  "ranks with some tokens of each sequence each");
}

#ifdef LLM_MPI

namespace {

// Throws ValueError if the task cannot be divided among so many ranks.
void check_division(const RankOptions& given, const TrainingTask& task, std::size_t num_ranks) {
    const auto stage = static_cast<ZeroStage>(given.zero);
    if (given.axes.is_one_rank()) return check_ranks(task.args, num_ranks, stage);
    require(stage == ZeroStage::none,
            "--zero excludes --tensor, --pipeline and --context, which divide the moving "
            "averages, too");
    check_mesh(task, mesh_sizes(num_ranks, given.axes));
}

// In quotation marks if a shell would read something else.
std::string in_shell(const std::string& word) {
    const bool is_plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$`*?[]{}()<>|&;!~#") == word.npos;
    if (is_plain) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

[[noreturn]] void start_ranks(std::size_t num_ranks, int argc, char** argv) {
    const std::vector<std::string> command = mpirun_command(num_ranks, argc, argv);
    std::string line;
    for (const std::string& word : command) line += " " + in_shell(word);
    show("command", line.substr(1));
    run_mpirun(command, "train", resume_advice);
    std::exit(0);
}

}  // namespace

struct RankProcess::Group {
    MpiRanks mpi;
    bool is_silent = false;  // while all ranks read the command line
};

RankProcess::RankProcess() {
    if (!started_as_rank()) return;
    group_ = std::make_unique<Group>();
    if (is_main()) return;
    print_nothing();
    group_->is_silent = true;
}

bool RankProcess::is_main() const { return !group_ || group_->mpi.world().rank() == 0; }

std::shared_ptr<TrainingStrategy> RankProcess::strategy(const RankOptions& given,
                                                        const Options& options,
                                                        const TrainingTask& task, int argc,
                                                        char** argv) {
    check_options(given, options);
    if (given.num_ranks > 0) check_division(given, task, given.num_ranks);
    if (!group_ && given.num_ranks > 0) start_ranks(given.num_ranks, argc, argv);
    if (!group_) return std::make_shared<TrainingStrategy>();

    Communicator& world = group_->mpi.world();
    require(started_ranks() == 0 || started_ranks() == world.size(),
            "mpirun has started {} ranks, but the MPI library of this program knows of {}: "
            "they belong to different MPIs",
            started_ranks(), world.size());
    require(given.num_ranks == 0 || given.num_ranks == world.size(),
            "--ranks {}, but mpirun has started {}", given.num_ranks, world.size());
    check_division(given, task, world.size());
    set_num_threads(num_threads() / group_->mpi.num_on_machine());
    if (group_->is_silent) print_errors();
    group_->is_silent = false;
    if (given.axes.is_one_rank())
        return std::make_shared<RanksStrategy>(world, static_cast<ZeroStage>(given.zero));
    return std::make_shared<MeshStrategy>(world, mesh_sizes(world.size(), given.axes));
}

int RankProcess::end(int code) const {
    if (!group_ || code == 0) return code;
    // An error of the command line is that of all ranks: rank 0 prints it.
    if (group_->is_silent) wait_a_second();
    group_->mpi.abort(code);
}

#else

struct RankProcess::Group {};

RankProcess::RankProcess() = default;

bool RankProcess::is_main() const { return true; }

std::shared_ptr<TrainingStrategy> RankProcess::strategy(const RankOptions& given,
                                                        const Options& options,
                                                        const TrainingTask&, int, char**) {
    check_options(given, options);
    return std::make_shared<TrainingStrategy>();
}

int RankProcess::end(int code) const { return code; }

#endif

RankProcess::~RankProcess() = default;

}  // namespace llm::runs
