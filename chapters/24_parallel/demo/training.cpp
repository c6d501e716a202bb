#include "chapters/24_parallel/demo/training.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/24_parallel/demo/small_run.hpp"
#include "chapters/24_parallel/sharded_model.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

std::vector<Model> one_gradient(const SmallRun& run) { return {zeros_like(run.model)}; }

// One step on n ranks, as rank 0 sees it.
struct Step {
    StepMetrics metrics{};
    Model model{};
};
Step take_step(const SmallRun& run, std::size_t n, ZeroStage stage) {
    Step result;
    run_ranks(n, [&](Communicator& ranks) {
        Step own;
        std::vector<Model> gradients = one_gradient(run);
        if (stage == ZeroStage::none) {
            TrainerState state = make_trainer_state(run.model, run.args);
            own.metrics = data_parallel_step(ranks, state, run.args, run.tokens, gradients);
            own.model = state.model;
        } else if (stage == ZeroStage::optimizer_states) {
            TrainerState state = make_sharded_optimizer(ranks, run.model, run.args);
            own.metrics = sharded_optimizer_step(ranks, state, run.args, run.tokens, gradients);
            own.model = state.model;
        } else {
            TrainerState state = make_sharded_optimizer(ranks, run.model, run.args);
            ShardedModel sharded(ranks, run.model, stage);
            own.metrics = sharded_model_step(ranks, sharded, state, run.args, run.tokens);
            own.model = sharded.gather();
        }
        if (ranks.rank() == 0) result = std::move(own);
    });
    return result;
}

// The gradient of this rank's tokens: of their mean loss, not of their share of the batch.
Model gradient_of_own_mean(const SmallRun& run, const Communicator& ranks) {
    RankBatch batch =
        batches_of_rank(sample_batches(run.args, 0, run.tokens), ranks.size(), ranks.rank())[0];
    batch.share = 1;
    Model gradient = zeros_like(run.model);
    share_of_loss(run.model, run.args, batch, gradient);
    return gradient;
}

Model gradient_of_share(const SmallRun& run, const Communicator& ranks) {
    std::vector<Model> gradients = one_gradient(run);
    share_of_step(ranks, make_trainer_state(run.model, run.args), run.args, run.tokens,
                  gradients);
    return gradients[0];
}

}  // namespace

void share_of_each_rank(std::size_t num_ranks, std::uint32_t seed) {
    step("A batch of 5 sequences, divided among ranks");
    const SmallRun run = small_run(seed);
    const std::vector<StepBatch> batches = sample_batches(run.args, 0, run.tokens);
    std::vector<TableRow> rows;
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
        for (const auto& [step_batch, share] : batches_of_rank(batches, num_ranks, rank)) {
            std::string sequences;
            for (std::size_t row = 0; row < step_batch.batch.input_ids.shape(0); ++row)
                sequences += letters(step_batch.batch.input_ids, row) + "  ";
            rows.push_back({to_text(rank), sequences, fixed(double(share), 1)});
        }
    show_table({"rank", "sequences (_ is a space)", "share of the tokens"}, rows);
}

void one_step_on_ranks(std::uint32_t seed) {
    step("One step of data parallelism on 1 to 5 ranks");
    const SmallRun run = small_run(seed);
    TrainerState one = make_trainer_state(run.model, run.args);
    std::vector<Model> gradients = one_gradient(run);
    const StepMetrics expected = train_step(one, run.args, run.tokens, gradients);
    std::vector<TableRow> rows = {
        {"one process", fixed(expected.loss, 6), fixed(expected.grad_norm, 6), "0"}};
    for (const std::size_t n : {1, 2, 3, 4, 5}) {
        const Step now = take_step(run, n, ZeroStage::none);
        rows.push_back({to_text(n) + (n == 1 ? " rank" : " ranks"), fixed(now.metrics.loss, 6),
                        fixed(now.metrics.grad_norm, 6),
                        small_difference(largest_difference(now.model, one.model))});
    }
    show_table({"", "loss", "gradient norm", "parameters differ by"}, rows);
}

void stages_of_zero(std::size_t num_ranks, std::uint32_t seed) {
    step("The same step with a sharded optimizer, gradient and model");
    const SmallRun run = small_run(seed);
    const Step whole = take_step(run, num_ranks, ZeroStage::none);
    std::vector<TableRow> rows;
    for (const auto& [name, stage] :
         {std::pair("0: nothing", ZeroStage::none),
          std::pair("1: moving averages", ZeroStage::optimizer_states),
          std::pair("2: and gradients", ZeroStage::gradients),
          std::pair("3: and parameters", ZeroStage::parameters)}) {
        const Step now = take_step(run, num_ranks, stage);
        rows.push_back({name, fixed(now.metrics.loss, 6), fixed(now.metrics.grad_norm, 6),
                        small_difference(largest_difference(now.model, whole.model))});
    }
    show_table({"what is sharded", "loss", "gradient norm", "parameters differ by"}, rows);
}

void wrong_mean_of_means(std::size_t num_ranks, std::uint32_t seed) {
    step("Wrong: the mean of the ranks' means");
    const SmallRun run = small_run(seed);
    std::vector<double> norms(2);
    run_ranks(num_ranks, [&](Communicator& ranks) {
        Model mean = gradient_of_own_mean(run, ranks), share = gradient_of_share(run, ranks);
        all_reduce_gradient(ranks, mean);
        all_reduce_gradient(ranks, share);
        for (const Parameter& parameter : named_parameters(mean))
            for (Real& g : parameter.values) g /= Real(num_ranks);
        if (ranks.rank() != 0) return;
        norms[0] = grad_norm(named_parameters(share));
        norms[1] = grad_norm(named_parameters(mean));
    });
    show_table({"gradient of", "norm"}, {{"the whole batch", fixed(norms[0], 4)},
                                         {"a mean of means", fixed(norms[1], 4)}});
}

void wrong_clipping(std::size_t num_ranks, std::uint32_t seed) {
    step("Wrong: each rank clips by the norm of its shard");
    const SmallRun run = small_run(seed);
    std::vector<double> norms(num_ranks);
    double whole_norm = 0;
    run_ranks(num_ranks, [&](Communicator& ranks) {
        Model gradient = gradient_of_share(run, ranks);
        all_reduce_gradient(ranks, gradient);
        const std::vector<Parameter> shard = shard_of_rank(ranks, gradient);
        norms[ranks.rank()] = grad_norm(shard);
        const double norm = sharded_grad_norm(ranks, shard);
        if (ranks.rank() == 0) whole_norm = norm;
    });
    const auto row = [&](const std::string& name, double norm) {
        return TableRow{name, fixed(norm, 4),
                        fixed(std::min(1.0, run.args.max_grad_norm / norm), 4)};
    };
    std::vector<TableRow> rows = {row("the whole gradient", whole_norm)};
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
        rows.push_back(row("shard of rank " + to_text(rank), norms[rank]));
    show_table({"norm of", "norm", "so it is multiplied by"}, rows);
}

void wrong_tied_embedding(std::size_t num_ranks, std::uint32_t seed) {
    step("Wrong: a tied embedding reduced twice, as embedding and as head");
    const SmallRun run = small_run(seed);
    std::vector<double> norms(2);
    run_ranks(num_ranks, [&](Communicator& ranks) {
        Model gradient = gradient_of_share(run, ranks);
        all_reduce_gradient(ranks, gradient);
        const FlatParameters embedding = {named_parameters(gradient)[0]};
        const double right = grad_norm(embedding);
        transform_flattened(embedding, [&](std::span<Real> flat) { ranks.all_reduce(flat); });
        if (ranks.rank() == 0) norms = {right, grad_norm(embedding)};
    });
    show_table({"gradient of embed_tokens", "norm"},
               {{"reduced once", fixed(norms[0], 4)}, {"reduced twice", fixed(norms[1], 4)}});
}

}  // namespace llm
