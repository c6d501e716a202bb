#include "chapters/18_experts/moe_training.hpp"
#include "chapters/24_parallel/demo/small_run.hpp"
#include "chapters/24_parallel/sharded_optimizer.hpp"
#include "chapters/28_model_parallel/demo/model_axes.hpp"
#include "chapters/28_model_parallel/expert_parallel.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

constexpr Real aux_loss_coef = Real(0.1);

// The small run with 8 experts, of which a token uses two, and a shared one in each layer.
struct ExpertRun {
    MoeDecoder model;
    Batch batch;
};
ExpertRun expert_run(std::uint32_t seed) {
    const SmallRun run = small_run(seed);
    Generator generator(seed);
    return {make_moe_decoder(run.model.config, {8, 2, 16, 1}, SoftmaxRouting{}, generator),
            run.batch()};
}

// The sequences of a rank.
Batch sequences_of(const Batch& batch, const Communicator& ranks) {
    const auto [begin, size] = part_of(batch.input_ids.shape(0), ranks.size(), ranks.rank());
    return {xt::view(batch.input_ids, xt::range(begin, begin + size)),
            xt::view(batch.targets, xt::range(begin, begin + size))};
}

// What rank 0 to n - 1 send in the first layer.
struct RowsSent {
    std::vector<std::size_t> rows;  // (n): to each rank
    std::size_t num_tokens = 0;
    std::uint64_t num_bytes = 0;
};
std::vector<RowsSent> traffic_of(const ExpertRun& run, std::size_t n) {
    std::vector<RowsSent> result(n);
    run_ranks(n, [&](Communicator& ranks) {
        const ExpertParallelDecoder part = expert_parallel_part(run.model, ranks);
        const Batch own = sequences_of(run.batch, ranks);
        const auto saved = model_forward(part, own.input_ids).activations;
        const ExpertParallelActivations& layer = saved.layers[0].mlp;

        // The first layer once more, and what it sends.
        const auto [batch_size, seq_len] = dims(own.input_ids);
        const Tensor3 input = reshape(std::get<MoeActivations>(layer.own_tokens).input,
                                      {batch_size, seq_len, run.model.config.hidden_size});
        const std::uint64_t before = ranks.num_bytes_sent();
        mlp_forward(part.layers[0].mlp, input);
        result[ranks.rank()] = {layer.exchange.sent, batch_size * seq_len,
                                ranks.num_bytes_sent() - before};
    });
    return result;
}

// What may go wrong in a step. Libraries divide summed gradients by the number of ranks. Those
// of experts are sums over ranks, too; if they are not divided, they are n times too large.
enum class ExpertMistake { none, all_reduced, not_divided, load_of_own_tokens };

// Changes the complete gradients of a rank's experts as a mistake does.
void spoil(ExpertMistake mistake, Communicator& ranks, const std::vector<Parameter>& experts) {
    for (const Parameter& parameter : experts) {
        if (mistake == ExpertMistake::all_reduced) ranks.all_reduce(parameter.values);
        if (mistake == ExpertMistake::not_divided)
            for (Real& value : parameter.values) value *= Real(ranks.size());
    }
}

TableRow expert_step(const ExpertRun& run, const std::string& name, std::size_t n,
                     ExpertMistake mistake) {
    TableRow row;
    run_ranks(n, [&](Communicator& ranks) {
        const ExpertParallelDecoder part = expert_parallel_part(run.model, ranks);
        ExpertParallelDecoder gradient = zeros_like(part);
        const Batch own = sequences_of(run.batch, ranks);
        const Real share = Real(own.targets.size()) / Real(run.batch.targets.size());
        const auto alone = ranks.split(ranks.rank());
        const bool own_load = mistake == ExpertMistake::load_of_own_tokens;
        auto [loss, aux_loss] = forward_backward(part, own, share, aux_loss_coef,
                                                 own_load ? *alone : ranks, gradient);
        sum_replicated_gradients(ranks, gradient);
        const auto [experts, replicated] = experts_and_replicated(gradient);
        spoil(mistake, ranks, experts);
        const TableRow result = {name, fixed(sum_over_ranks(ranks, loss), 6),
                                 fixed(sum_over_ranks(ranks, aux_loss), 6),
                                 fixed(sharded_grad_norm(ranks, experts), 6),
                                 fixed(grad_norm(replicated), 6)};
        if (ranks.rank() == 0) row = result;
    });
    return row;
}

}  // namespace

void rows_of_an_all_to_all(std::uint32_t seed) {
    step("Expert parallelism: 8 experts on 4 ranks, rows sent in one layer");
    const std::vector<RowsSent> traffic = traffic_of(expert_run(seed), 4);
    std::vector<TableRow> rows;
    Vector received = xt::zeros<Real>({std::size_t{4}});
    for (std::size_t rank = 0; rank < 4; ++rank) {
        const auto [begin, size] = part_of(8, 4, rank);
        rows.push_back({to_text(rank), to_text(begin) + " to " + to_text(begin + size - 1),
                        to_text(traffic[rank].num_tokens)});
        for (std::size_t r = 0; r < 4; ++r) {
            rows.back().push_back(to_text(traffic[rank].rows[r]));
            received(r) += Real(traffic[rank].rows[r]);
        }
        rows.back().push_back(to_text(traffic[rank].num_bytes));
    }
    rows.push_back({"received", "", ""});
    for (const Real count : received) rows.back().push_back(to_text(std::size_t(count)));
    rows.back().push_back("");
    show_table({"rank", "experts", "tokens", "to 0", "to 1", "to 2", "to 3", "bytes sent"},
               rows);
    show("max_violation", max_violation(received));
}

void one_step_of_expert_parallelism(std::uint32_t seed) {
    step("Expert parallelism: losses, gradient norms of the experts and the rest");
    const ExpertRun run = expert_run(seed);
    std::vector<TableRow> rows;
    for (const std::size_t n : {1, 2, 3, 4})
        rows.push_back(expert_step(run, to_text(n) + (n == 1 ? " rank" : " ranks"), n,
                                   ExpertMistake::none));
    rows.push_back(
        expert_step(run, "wrong, 2 ranks: experts all-reduced", 2, ExpertMistake::all_reduced));
    rows.push_back(
        expert_step(run, "wrong, 2 ranks: experts doubled", 2, ExpertMistake::not_divided));
    rows.push_back(expert_step(run, "wrong, 2 ranks: load of own tokens", 2,
                               ExpertMistake::load_of_own_tokens));
    show_table({"", "loss", "aux loss", "experts", "rest"}, rows);
}

}  // namespace llm
