#include "chapters/24_parallel/demo/training.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/24_parallel/sharded_model.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

const std::string text =
    "the cat sat on the mat. the dog sat on the cat. the cat ran. the dog ran to the mat. ";
constexpr std::size_t batch_size = 5;

// A model of 2 layers that has letters as tokens, and one step: 5 sequences of 8 tokens.
struct SmallRun {
    Model model;
    TrainingArguments args;
    std::vector<Id> tokens;
};
SmallRun small_run(std::uint32_t seed) {
    Config config = mini_llm_config();
    config.hidden_size = 32;
    config.intermediate_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 28;  // a to z, space and full stop
    Generator generator(seed);
    SmallRun run{make_model_for_training(config, generator), {}, {}};
    run.args.batch_size = batch_size;
    run.args.seq_len = 8;
    run.args.seed = seed;
    run.args.max_grad_norm = 0.5;
    run.args.lr_schedule = {Real(0.01), Real(0.001), 2, 10};
    for (const char letter : text)
        run.tokens.push_back(letter == ' ' ? 26 : letter == '.' ? 27 : letter - 'a');
    return run;
}

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

// The largest difference between the parameters of two models.
double largest_difference(Model a, Model b) {
    const std::vector<Parameter> of_a = named_parameters(a), of_b = named_parameters(b);
    double largest = 0;
    for (std::size_t p = 0; p < of_a.size(); ++p)
        for (std::size_t i = 0; i < of_a[p].values.size(); ++i)
            largest = std::max(largest,
                               std::abs(double(of_a[p].values[i]) - double(of_b[p].values[i])));
    return largest;
}

std::string letters(const IdMatrix& ids, std::size_t row) {
    std::string result;
    for (std::size_t t = 0; t < ids.shape(1); ++t)
        result += ids(row, t) == 26   ? '_'
                  : ids(row, t) == 27 ? '.'
                                      : static_cast<char>('a' + ids(row, t));
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
        rows.push_back(
            {to_text(n) + (n == 1 ? " rank" : " ranks"), fixed(now.metrics.loss, 6),
             fixed(now.metrics.grad_norm, 6),
             largest_difference(now.model, one.model) < 1e-5 ? "< 0.00001" : "more"});
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
        rows.push_back(
            {name, fixed(now.metrics.loss, 6), fixed(now.metrics.grad_norm, 6),
             largest_difference(now.model, whole.model) < 1e-5 ? "< 0.00001" : "more"});
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
