#include "chapters/apps/train/ranks_strategy.hpp"

#include <numeric>

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/24_parallel/training_memory.hpp"
#include "common/parallel/mpirun.hpp"
#include "common/system/parallel.hpp"

namespace llm::runs {
namespace {

template <class T>
void broadcast_vector(Communicator& ranks, std::vector<T>& values) {
    std::size_t size = values.size();
    ranks.broadcast(std::span(&size, 1), 0);
    values.resize(size);
    ranks.broadcast(std::span(values), 0);
}

// All ranks have made the state with the same arguments, so all tensors have equal shapes.
void broadcast_state(Communicator& ranks, TrainerState& state) {
    for (const Parameter& parameter : named_parameters(state.model))
        ranks.broadcast(parameter.values, 0);
    for (auto* averages : {&state.optimizer.exp_avg, &state.optimizer.exp_avg_sq})
        for (std::vector<Real>& values : *averages) ranks.broadcast(std::span(values), 0);
    for (Matrix& buffer : state.muon.momentum_buffer)
        ranks.broadcast(std::span(buffer.data(), buffer.size()), 0);
    broadcast_vector(ranks, state.losses);
    state.global_step = state.optimizer.step_count = state.losses.size();
}

// The shard of this rank, and the inverse. `whole` is a buffer.
Averages shard_of_averages(const Communicator& ranks, const Averages& averages, Model& whole) {
    set_values(named_parameters(whole), averages);
    return values_of(shard_of_rank(ranks, whole));
}
Averages gather_averages(Communicator& ranks, const Averages& shard, Model& whole) {
    std::vector<Real> flat;
    for (const std::vector<Real>& piece : shard)
        flat.insert(flat.end(), piece.begin(), piece.end());
    gather_shards(ranks, flat, whole);
    return values_of(named_parameters(whole));
}

}  // namespace

Averages values_of(const std::vector<Parameter>& parameters) {
    Averages values;
    for (const Parameter& parameter : parameters)
        values.emplace_back(parameter.values.begin(), parameter.values.end());
    return values;
}

void set_values(const std::vector<Parameter>& parameters, const Averages& averages) {
    for (std::size_t p = 0; p < parameters.size(); ++p)
        std::copy(averages[p].begin(), averages[p].end(), parameters[p].values.begin());
}

void check_ranks(const TrainingArguments& args, std::size_t num_ranks, ZeroStage stage) {
    const std::size_t count = args.gradient_accumulation_steps * args.batch_size;
    require(num_ranks <= count, "--ranks: {} ranks for the {} sequences of a step", num_ranks,
            count);
    require(stage == ZeroStage::none || args.optimizer == OptimizerType::adamw,
            "--zero excludes --optimizer muon, which needs whole matrices");
}

std::string RanksStrategy::ranks_and_threads() const {
    return to_text(ranks_.size()) + " with " + to_text(num_threads()) +
           (num_threads() == 1 ? " thread" : " threads") + " each";
}

std::string RanksStrategy::description() const {
    return ranks_and_threads() + ", ZeRO stage " + to_text(std::size_t(stage_));
}

std::uint64_t RanksStrategy::num_bytes(const Config& config,
                                       const TrainingArguments& args) const {
    const std::uint64_t kept = training_memory(config, stage_, ranks_.size()).kept();
    if (stage_ >= ZeroStage::gradients) return kept;
    const std::size_t other_batches = num_batches_of_rank(args, ranks_.size()) - 1;
    return kept + 4 * count_parameters(config).total() * other_batches;
}

void RanksStrategy::share(TrainingTask& task) {
    static_assert(std::is_trivially_copyable_v<TrainingArguments>);
    ranks_.broadcast(std::span(&task.args, 1), 0);
    ranks_.broadcast(std::span(&task.config.vocab_size, 1), 0);
    for (std::vector<Id>* ids :
         {&task.dataset.train, &task.dataset.validation, &task.eos_token_ids})
        broadcast_vector(ranks_, *ids);
}

double RanksStrategy::from_main(double value) {
    ranks_.broadcast(std::span(&value, 1), 0);
    return value;
}

void RanksStrategy::name_failure(const std::function<void()>& function) const {
    std::string reason;
    try {
        return function();
    } catch (const LossNotFinite&) {  // of all ranks
        throw;
    } catch (const std::bad_alloc&) {
        reason = "not enough memory";
    } catch (const std::exception& error) {
        reason = error.what();
    }
    throw std::runtime_error("rank " + to_text(ranks_.rank()) + ": " + reason + resume_advice);
}

void RanksStrategy::shard_optimizer(TrainerState& state, const TrainingArguments& args) {
    const AdamW whole = std::move(state.optimizer);
    state.optimizer = make_sharded_optimizer(ranks_, state.model, args).optimizer;
    state.optimizer.step_count = whole.step_count;
    Model buffer = zeros_like(state.model);
    state.optimizer.exp_avg = shard_of_averages(ranks_, whole.exp_avg, buffer);
    state.optimizer.exp_avg_sq = shard_of_averages(ranks_, whole.exp_avg_sq, buffer);
}

void RanksStrategy::start(TrainerState& state, const TrainingArguments& args) {
    name_failure([&] {
        broadcast_state(ranks_, state);
        divide(state, args);
    });
}

void RanksStrategy::divide(TrainerState& state, const TrainingArguments& args) {
    if (stage_ != ZeroStage::none) shard_optimizer(state, args);
    if (stage_ >= ZeroStage::gradients)
        model_.emplace(ranks_, state.model, stage_);
    else
        gradients_.assign(num_batches_of_rank(args, ranks_.size()), zeros_like(state.model));
}

StepMetrics RanksStrategy::divided_step(TrainerState& state, const TrainingArguments& args,
                                        const std::vector<Id>& tokens) {
    if (stage_ == ZeroStage::none)
        return data_parallel_step(ranks_, state, args, tokens, gradients_);
    if (stage_ == ZeroStage::optimizer_states)
        return sharded_optimizer_step(ranks_, state, args, tokens, gradients_);
    state.model.layers.clear();
    return sharded_model_step(ranks_, *model_, state, args, tokens);
}

StepMetrics RanksStrategy::step(TrainerState& state, const TrainingArguments& args,
                                const std::vector<Id>& tokens) {
    StepMetrics metrics{};
    try {
        name_failure([&] { metrics = divided_step(state, args, tokens); });
    } catch (const LossNotFinite& error) {
        if (!is_main()) wait_a_second();  // one message is enough
        throw std::runtime_error("step " + to_text(state.global_step + 1) + ": " +
                                 error.what() + resume_advice);
    }
    return metrics;
}

void RanksStrategy::gather_model(TrainerState& state) {
    if (model_) state.model = model_->gather();
}

std::optional<AdamW> RanksStrategy::gather_optimizer(const TrainerState& state) {
    if (stage_ == ZeroStage::none) return {};
    AdamW whole = state.optimizer;
    Model buffer = zeros_like(state.model);
    whole.exp_avg = gather_averages(ranks_, state.optimizer.exp_avg, buffer);
    whole.exp_avg_sq = gather_averages(ranks_, state.optimizer.exp_avg_sq, buffer);
    return whole;
}

void RanksStrategy::save(TrainerState& state, const TrainingArguments& args,
                         const std::vector<Id>& tokens, const std::string& file) {
    name_failure([&] {
        gather_model(state);
        std::optional<AdamW> other = gather_optimizer(state);
        if (other) std::swap(state.optimizer, *other);
        if (is_main()) save_checkpoint(state, args, tokens, file);
        if (other) state.optimizer = std::move(*other);
    });
}

// The batches are divided among the ranks. The losses are added in the order of the batches, as
// one process does.
double RanksStrategy::evaluate(const Model& model, const std::vector<Id>& tokens,
                               const TrainingArguments& args, std::size_t max_batches) {
    const std::vector<Batch> batches =
        evaluation_batches(tokens, args.batch_size, args.seq_len, max_batches);
    std::vector<double> losses(batches.size());
    const std::size_t first = part_of(batches.size(), ranks_.size(), ranks_.rank()).begin;
    const std::size_t count = part_of(batches.size(), ranks_.size(), ranks_.rank()).size;
    name_failure([&] {
        parallel_for(count, [&](std::size_t i) {
            const auto& [input_ids, targets] = batches[first + i];
            losses[first + i] = evaluate_loss(model, input_ids, targets,
                                              attention_inputs(model.config, args, input_ids));
        });
    });
    ranks_.all_gather(std::span(losses));
    return std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size());
}

bool RanksStrategy::interrupted() {
    return sum_over_ranks(ranks_, InterruptHandler::interrupted()) > 0;
}

}  // namespace llm::runs
