#include "chapters/24_parallel/demo/small_run.hpp"
#include "chapters/28_model_parallel/context_parallel.hpp"
#include "chapters/28_model_parallel/demo/model_axes.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

// The pairs of query and key that a rank computes under a causal mask.
std::size_t num_pairs(const std::vector<std::size_t>& positions) {
    std::size_t pairs = 0;
    for (const std::size_t position : positions) pairs += position + 1;
    return pairs;
}

std::string ranges(const std::vector<std::size_t>& positions) {
    std::string text;
    for (std::size_t i = 0; i < positions.size(); ++i)
        if (i == 0 || positions[i] != positions[i - 1] + 1 || i + 1 == positions.size())
            text += (i == 0                                 ? ""
                     : positions[i] == positions[i - 1] + 1 ? " to "
                                                            : ", ") +
                    to_text(positions[i]);
        else if (positions[i + 1] != positions[i] + 1)
            text += " to " + to_text(positions[i]);
    return text;
}

// The targets of a rank: shifted before the tokens are divided, or, which is wrong, after.
IdMatrix targets_of(const Batch& batch, const std::vector<std::size_t>& own,
                    bool shifted_after) {
    if (!shifted_after) return slice_positions(batch.targets, own);
    const IdMatrix ids = slice_positions(batch.input_ids, own);
    IdMatrix targets = slice_positions(batch.targets, own);
    for (std::size_t b = 0; b < ids.shape(0); ++b)
        for (std::size_t t = 0; t + 1 < own.size(); ++t) targets(b, t) = ids(b, t + 1);
    return targets;
}

std::pair<double, double> ring_step(const SmallRun& run, std::size_t n, bool shifted_after) {
    std::pair<double, double> result;
    run_ranks(n, [&](Communicator& ranks) {
        const Batch batch = run.batch();
        const auto [batch_size, seq_len] = dims(batch.input_ids);
        const ContextParallelModel model = context_parallel(run.model, ranks);
        ContextParallelModel gradient = zeros_like(model);
        const RingAttention::Inputs inputs =
            ring_inputs(run.model.config, ranks, batch_size, seq_len);
        const std::vector<std::size_t> own = inputs.chunks.positions(ranks.rank());
        const Real share = Real(own.size()) / Real(seq_len);
        const IdMatrix targets = targets_of(batch, own, shifted_after);
        const auto [logits, saved] =
            model_forward(model, slice_positions(batch.input_ids, own), inputs);
        model_backward(model, saved, share * cross_entropy_backward(logits, targets), gradient);
        double loss = double(share) * cross_entropy(logits, targets);
        ranks.all_reduce(std::span(&loss, 1));
        for (const Parameter& parameter : named_parameters(gradient))
            ranks.all_reduce(parameter.values);
        if (ranks.rank() == 0) result = {loss, grad_norm(named_parameters(gradient))};
    });
    return result;
}

}  // namespace

void zigzag_chunks() {
    step("Context parallelism: 16 tokens on 4 ranks, and pairs of query and key");
    const ZigzagChunks chunks{16, 4};
    std::vector<TableRow> rows;
    for (std::size_t rank = 0; rank < 4; ++rank) {
        const auto [begin, size] = part_of(16, 4, rank);
        std::vector<std::size_t> in_order;
        for (std::size_t t = begin; t < begin + size; ++t) in_order.push_back(t);
        const std::vector<std::size_t> zigzag = chunks.positions(rank);
        rows.push_back({to_text(rank), ranges(in_order), to_text(num_pairs(in_order)),
                        ranges(zigzag), to_text(num_pairs(zigzag))});
    }
    show_table({"rank", "in order", "pairs", "zigzag", "pairs"}, rows);
}

void one_step_of_ring_attention(std::uint32_t seed) {
    step("Loss and gradient with ring attention");
    const SmallRun run = small_run(seed);
    std::vector<TableRow> rows;
    const auto add = [&](const std::string& name, const std::pair<double, double>& result) {
        rows.push_back({name, fixed(result.first, 6), fixed(result.second, 6)});
    };
    for (const std::size_t n : {1, 2, 3, 4})
        add(to_text(n) + (n == 1 ? " rank" : " ranks"), ring_step(run, n, false));
    add("wrong: 2 ranks, targets shifted after slicing", ring_step(run, 2, true));
    show_table({"", "loss", "gradient norm"}, rows);
}

}  // namespace llm
