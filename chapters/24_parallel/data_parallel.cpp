#include "chapters/24_parallel/data_parallel.hpp"

#include <cmath>
#include <numeric>

#include "chapters/13_training/training_loop.hpp"

namespace llm {
namespace {

// Sequences `first` to first + count - 1 of batches of equal size, which follow one another.
StepBatch sequences(const std::vector<StepBatch>& batches, std::size_t first,
                    std::size_t count) {
    const auto [batch_size, seq_len] = dims(batches[0].batch.input_ids);
    StepBatch result{
        {IdMatrix::from_shape({count, seq_len}), IdMatrix::from_shape({count, seq_len})}, 0};
    for (std::size_t row = 0; row < count; ++row) {
        const Batch& source = batches[(first + row) / batch_size].batch;
        const std::size_t source_row = (first + row) % batch_size;
        xt::view(result.batch.input_ids, row) = xt::view(source.input_ids, source_row);
        xt::view(result.batch.targets, row) = xt::view(source.targets, source_row);
    }
    // Dropout masks differ between ranks. A batch that is not divided keeps its masks.
    const auto offset = static_cast<std::uint32_t>(first % batch_size);
    result.dropout_seed = batches[first / batch_size].dropout_seed + offset;
    return result;
}

}  // namespace

std::vector<RankBatch> batches_of_rank(const std::vector<StepBatch>& batches,
                                       std::size_t num_ranks, std::size_t rank) {
    const std::size_t batch_size = batches.at(0).batch.input_ids.shape(0);
    const std::size_t count = batches.size() * batch_size;
    require(num_ranks <= count, "training: {} ranks for the {} sequences of a step", num_ranks,
            count);
    const auto [begin, size] = part_of(count, num_ranks, rank);
    std::vector<RankBatch> own;
    for (std::size_t row = 0; row < part_of(count, num_ranks, 0).size; row += batch_size) {
        if (row < size) {
            const std::size_t rows = std::min(batch_size, size - row);
            own.push_back({sequences(batches, begin + row, rows), Real(rows) / Real(count)});
        } else {  // rank 0 has one sequence more
            own.push_back({sequences(batches, begin, 1), 0});
        }
    }
    return own;
}

std::size_t num_batches_of_rank(const TrainingArguments& args, std::size_t num_ranks) {
    const std::size_t count = args.gradient_accumulation_steps * args.batch_size;
    return (part_of(count, num_ranks, 0).size + args.batch_size - 1) / args.batch_size;
}

double share_of_step(const Communicator& ranks, const TrainerState& state,
                     const TrainingArguments& args, const std::vector<Id>& tokens,
                     std::vector<Model>& gradients) {
    const std::vector<RankBatch> batches = batches_of_rank(
        sample_batches(args, state.global_step, tokens), ranks.size(), ranks.rank());
    require(gradients.size() == batches.size(), "training: {} gradients for {} batches",
            gradients.size(), batches.size());
    return sum_losses_and_gradients<Model>(gradients, [&](std::size_t i, Model& gradient) {
        return share_of_loss(state.model, args, batches[i], gradient);
    });
}

double sum_of_shares(Communicator& ranks, double share) {
    std::vector<double> shares(ranks.size());
    shares[ranks.rank()] = share;
    ranks.all_gather(std::span(shares));
    std::string failed;
    for (std::size_t rank = 0; rank < shares.size(); ++rank)
        if (!std::isfinite(shares[rank])) failed += " " + std::to_string(rank);
    if (!failed.empty()) throw LossNotFinite("the loss is not finite on rank" + failed);
    return std::accumulate(shares.begin(), shares.end(), 0.0);
}

double sum_over_ranks(Communicator& ranks, double value) {
    ranks.all_reduce(std::span(&value, 1));
    return value;
}

void all_reduce_gradient(Communicator& ranks, Model& gradient) {
    for (const FlatParameters& bucket : flat_parameters(gradient))
        transform_flattened(bucket, [&](std::span<Real> flat) { ranks.all_reduce(flat); });
}

double overlapped_gradient(Communicator& ranks, const Model& model,
                           const TrainingArguments& args, const RankBatch& batch,
                           Model& gradient) {
    const std::vector<FlatParameters> buckets = flat_parameters(gradient);
    std::vector<std::vector<Real>> flat(buckets.size());
    std::vector<std::unique_ptr<PendingReduction>> pending(buckets.size());
    const auto start = [&](std::size_t bucket) {
        flat[bucket] = flatten(buckets[bucket]);
        pending[bucket] = ranks.start_all_reduce(std::span(flat[bucket]));
    };

    // Start the reduction of each layer, and let those that run go on.
    const double share = share_of_loss(model, args, batch, gradient, [&](std::size_t layer) {
        start(1 + layer);
        for (const auto& reduction : pending)
            if (reduction) reduction->progress();
    });
    start(0);  // embedding, final norm and head are complete at the end
    for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
        pending[bucket]->wait();
        unflatten(flat[bucket], buckets[bucket]);
    }
    return share;
}

StepMetrics data_parallel_step(Communicator& ranks, TrainerState& state,
                               const TrainingArguments& args, const std::vector<Id>& tokens,
                               std::vector<Model>& gradients) {
    const double share = share_of_step(ranks, state, args, tokens, gradients);
    const double loss = sum_of_shares(ranks, share);
    all_reduce_gradient(ranks, gradients[0]);

    // All ranks have the same gradient, so the same norm, and the same parameters afterwards.
    const std::vector<Parameter> gradient = named_parameters(gradients[0]);
    return update_parameters(state, args, loss, named_parameters(state.model), gradient,
                             grad_norm(gradient));
}

}  // namespace llm
