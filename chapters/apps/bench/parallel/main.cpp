// Times the messages and the steps of chapter 24 on the ranks that mpirun started:
// mpirun -n 2 build/bench_parallel. With --meshes or --attention, those of chapter 28 instead.
// tests/time/time_parallel.py compares them with one process and with PyTorch.
#include "chapters/24_parallel/data_parallel.hpp"
#include "chapters/24_parallel/ring.hpp"
#include "chapters/apps/bench/parallel/mesh.hpp"
#include "chapters/apps/bench/parallel/ring_attention.hpp"
#include "chapters/apps/bench/parallel/seconds_of.hpp"
#include "chapters/apps/train/training_options.hpp"
#include "chapters/apps/train/training_task.hpp"
#include "common/output/show.hpp"
#include "common/parallel/mpi_ranks.hpp"
#include "common/system/blas.hpp"
#include "common/system/parallel.hpp"

using namespace llm;

namespace {

std::string milliseconds(double seconds) { return fixed(1000 * seconds, 2); }

TableRow all_reduce_row(Communicator& ranks, std::size_t megabytes) {
    std::vector<Real> values(megabytes * 1'000'000 / sizeof(Real));
    const double ring = seconds_of(ranks, [&] { ring_all_reduce(ranks, values); });
    const double root = seconds_of(ranks, [&] { reduce_at_root(ranks, values); });
    const double library = seconds_of(ranks, [&] { ranks.all_reduce(std::span(values)); });
    return {to_text(megabytes), milliseconds(root), milliseconds(ring), milliseconds(library),
            fixed(library / ring, 2)};
}

// The run of ./learn train by default: 4 batches of 2 sequences of 256 tokens.
struct TimedRun {
    runs::TrainingTask task = runs::text_task();
    std::vector<Id> tokens;
    TrainerState state;

    TimedRun() {
        task.config.vocab_size = 1024;
        task = runs::apply({.steps = 1'000'000}, std::move(task));
        Generator generator(77);
        for (std::size_t i = 0; i < 20000; ++i)
            tokens.push_back(static_cast<Id>(i * 7919 % task.config.vocab_size));
        state = make_trainer_state(make_model_for_training(task.config, generator), task.args);
    }
};

double step_seconds(Communicator& ranks, TimedRun& run) {
    TrainerState& state = run.state;
    const TrainingArguments& args = run.task.args;
    const bool is_alone = ranks.size() == 1;
    std::vector<Model> gradients(
        is_alone ? args.gradient_accumulation_steps : num_batches_of_rank(args, ranks.size()),
        zeros_like(state.model));
    return seconds_of(ranks, [&] {
        if (is_alone)
            train_step(state, args, run.tokens, gradients);
        else
            data_parallel_step(ranks, state, args, run.tokens, gradients);
    });
}

// One batch of this rank: its gradient alone, then the all-reduce after it, or during it.
std::vector<TableRow> overlap_rows(Communicator& ranks, const TimedRun& run) {
    TrainingArguments args = run.task.args;
    args.batch_size *= args.gradient_accumulation_steps;
    args.gradient_accumulation_steps = 1;
    const RankBatch batch =
        batches_of_rank(sample_batches(args, 0, run.tokens), ranks.size(), ranks.rank())[0];
    Model gradient = zeros_like(run.state.model);
    const auto alone = [&] { share_of_loss(run.state.model, args, batch, gradient); };
    return {{"gradient alone", milliseconds(seconds_of(ranks, alone))},
            {"then all-reduce", milliseconds(seconds_of(ranks,
                                                        [&] {
                                                            alone();
                                                            all_reduce_gradient(ranks,
                                                                                gradient);
                                                        }))},
            {"all-reduce meanwhile", milliseconds(seconds_of(ranks, [&] {
                 overlapped_gradient(ranks, run.state.model, args, batch, gradient);
             }))}};
}

}  // namespace

int main(int argc, char** argv) {
    select_blas_kernels(argv);
    MpiRanks mpi;
    Communicator& ranks = mpi.world();
    set_num_threads(std::max<std::size_t>(1, num_threads() / ranks.size()));
    const std::string argument = argc > 1 ? argv[1] : "";
    if (argument == "--meshes") return compare_step_times(ranks), 0;
    if (argument == "--attention") return time_long_attention(ranks), 0;
    std::vector<TableRow> all_reduce, overlap;
    if (ranks.size() > 1)
        for (const std::size_t megabytes : {4, 16, 64})
            all_reduce.push_back(all_reduce_row(ranks, megabytes));
    TimedRun run;
    const double seconds = step_seconds(ranks, run);
    if (ranks.size() > 1) overlap = overlap_rows(ranks, run);
    if (ranks.rank() != 0) return 0;
    if (ranks.size() > 1) {
        say("All-reduce, milliseconds:");
        show_table({"MB", "by way of rank 0", "ring", "library", "library / ring"}, all_reduce);
        say("The gradient of a batch, milliseconds:");
        show_table({"", "ms"}, overlap);
    }
    show("milliseconds of a step", 1000 * seconds);
}
