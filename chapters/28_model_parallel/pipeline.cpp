#include "chapters/28_model_parallel/pipeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "chapters/28_model_parallel/context_parallel.hpp"

namespace llm {

StageSchedule gpipe_schedule(std::size_t num_micro_batches) {
    StageSchedule schedule;
    for (const Pass pass : {Pass::forward, Pass::backward})
        for (std::size_t i = 0; i < num_micro_batches; ++i) schedule.push_back({pass, i});
    return schedule;
}

StageSchedule one_forward_one_backward_schedule(std::size_t num_micro_batches,
                                                std::size_t num_stages, std::size_t stage) {
    // Warm-up: forward passes alone, until the first gradient arrives.
    const std::size_t m = num_micro_batches;
    const std::size_t num_warmup = std::min(m, num_stages - 1 - stage);
    StageSchedule schedule;
    for (std::size_t i = 0; i < num_warmup; ++i) schedule.push_back({Pass::forward, i});

    // Steady state: one of each. Cool-down: the backward passes that are left.
    for (std::size_t i = 0; i < m; ++i) {
        if (num_warmup + i < m) schedule.push_back({Pass::forward, num_warmup + i});
        schedule.push_back({Pass::backward, i});
    }
    return schedule;
}

namespace {

// When each pass of each stage and micro-batch has ended.
using EndTimes = std::map<std::tuple<Pass, std::size_t, std::size_t>, double>;

// When the input of an action is there; none: not yet. The first stage's forward passes and the
// last one's backward passes need nothing from other stages.
std::optional<double> input_time(const EndTimes& ends, const StageAction& action,
                                 std::size_t stage, std::size_t num_stages) {
    const auto& [pass, micro_batch] = action;
    const bool is_forward = pass == Pass::forward;
    if (stage == (is_forward ? 0 : num_stages - 1)) return 0;
    const auto end = ends.find({pass, is_forward ? stage - 1 : stage + 1, micro_batch});
    if (end == ends.end()) return std::nullopt;
    return end->second;
}

}  // namespace

std::vector<std::vector<TimedAction>> run_times(const std::vector<StageSchedule>& schedules,
                                                double forward_time, double backward_time) {
    const std::size_t p = schedules.size();
    std::vector<std::vector<TimedAction>> times(p);
    EndTimes ends;
    // Visit all stages again and again, until none can begin its next action.
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (std::size_t stage = 0; stage < p; ++stage) {
            if (times[stage].size() == schedules[stage].size()) continue;
            const StageAction& action = schedules[stage][times[stage].size()];
            const std::optional<double> input = input_time(ends, action, stage, p);
            if (!input) continue;
            const double idle_since = times[stage].empty() ? 0 : times[stage].back().end;
            const double begin = std::max(*input, idle_since);
            const double end =
                begin + (action.pass == Pass::forward ? forward_time : backward_time);
            times[stage].push_back({action, begin, end});
            ends[{action.pass, stage, action.micro_batch}] = end;
            has_changed = true;
        }
    }
    return times;
}

double bubble(const std::vector<std::vector<TimedAction>>& times) {
    double busy = 0, end = 0;
    for (const std::vector<TimedAction>& stage : times)
        for (const TimedAction& action : stage) {
            busy += action.end - action.begin;
            end = std::max(end, action.end);
        }
    return 1 - busy / (end * double(times.size()));
}

std::size_t most_in_flight(const StageSchedule& schedule) {
    std::size_t now = 0, most = 0;
    for (const StageAction& action : schedule) {
        now = action.pass == Pass::forward ? now + 1 : now - 1;
        most = std::max(most, now);
    }
    return most;
}

template <class AnyModel>
PipelineStage<AnyModel> pipeline_stage(const AnyModel& model, Communicator& ranks) {
    require(ranks.size() <= model.layers.size(), "pipeline: {} stages for {} layers",
            ranks.size(), model.layers.size());
    PipelineStage<AnyModel> stage{model, &ranks};
    const auto [begin, size] = part_of(model.layers.size(), ranks.size(), ranks.rank());
    const auto first = model.layers.begin() + static_cast<std::ptrdiff_t>(begin);
    stage.part.layers = {first, first + static_cast<std::ptrdiff_t>(size)};

    // Leave out what other stages have.
    const bool is_tied = !model.lm_head;
    const bool has_embedding = stage.is_first() || (stage.is_last() && is_tied);
    if (!has_embedding) stage.part.embed_tokens = {};
    if (!stage.is_last()) {
        if (stage.part.lm_head) stage.part.lm_head = Matrix{};
        stage.part.norm.weight = {};
    }
    return stage;
}

namespace {

// A stage from which data comes or to which it goes; none beyond both ends of the pipeline.
using Neighbor = std::optional<std::size_t>;
Neighbor next_stage(const Communicator& ranks) {
    if (ranks.rank() + 1 == ranks.size()) return std::nullopt;
    return ranks.rank() + 1;
}
Neighbor previous_stage(const Communicator& ranks) {
    if (ranks.rank() == 0) return std::nullopt;
    return ranks.rank() - 1;
}
// Hidden states go forward, from stage to stage, and their gradients backward.
Neighbor source_of(const StageAction& action, const Communicator& ranks) {
    return action.pass == Pass::forward ? previous_stage(ranks) : next_stage(ranks);
}
Neighbor destination_of(const StageAction& action, const Communicator& ranks) {
    return action.pass == Pass::forward ? next_stage(ranks) : previous_stage(ranks);
}

// Sends the output of an action and receives the input of the next one. With the same neighbor,
// both at once: it may be about to send, too, and would wait for this stage. Source:
// Megatron-LM, send_forward_recv_backward.
void exchange(Communicator& ranks, const Tensor3& output, Neighbor to, Tensor3& input,
              Neighbor from) {
    const std::span<const Real> sent(output.data(), output.size());
    const std::span<Real> received(input.data(), input.size());
    if (to && to == from) return ranks.send_receive<Real>(sent, *to, received, *from);
    if (to) ranks.send<Real>(sent, *to);
    if (from) ranks.receive<Real>(received, *from);
}

// The two ends of a model whose vocabulary is not divided, as in vocabulary_parallel.hpp.
Tensor3 embed_tokens(const Model& model, const IdMatrix& input_ids) {
    return model.embed(input_ids);
}
void embed_tokens_backward(const Model& model, const IdMatrix& input_ids,
                           const Tensor3& output_gradient, Model& gradient) {
    embed_backward(model, input_ids, output_gradient, gradient);
}
HeadLoss head_forward_backward(const Model& model, const Tensor3& last_hidden_state,
                               const IdMatrix& targets, Real share, Model& gradient) {
    const auto [logits, saved] = logits_forward(model, last_hidden_state);
    const Tensor3 logits_gradient = share * cross_entropy_backward(logits, targets);
    return {cross_entropy(logits, targets),
            logits_backward(model, saved, logits_gradient, gradient)};
}

// The shape of the hidden states that neighbors send, (B, T', C): T' is T or, with sequence
// parallelism, this rank's part of it.
std::array<std::size_t, 3> shape_of_states(const Model& model, const IdMatrix& input_ids) {
    return {input_ids.shape(0), input_ids.shape(1), model.config.hidden_size};
}
template <class Layer>
std::array<std::size_t, 3> shape_of_states(
    const DecoderModel<Layer, TensorParallelConfig>& part, const IdMatrix& input_ids) {
    const auto& [ranks, sequence_parallel, seq_len] = part.config.group;
    const std::size_t T = input_ids.shape(1);
    return {input_ids.shape(0),
            sequence_parallel ? part_of(T, ranks->size(), ranks->rank()).size : T,
            part.config.hidden_size};
}

// What a stage keeps of a micro-batch from its forward to its backward pass.
template <class AnyModel>
struct StageActivations {
    using Layer = typename decltype(AnyModel::layers)::value_type;
    std::vector<ActivationsOf<Layer>> layers;
    // Of the last stage: share times loss, and its gradient with respect to the output of the
    // layers, (B, T', C).
    double loss = 0;
    Tensor3 head_gradient;
};

// The forward pass of a micro-batch: from what the stage before sent to what is sent to the
// next one. The first stage embeds the ids instead. The last one goes on with head and loss, of
// which it computes the gradient at once, and sends nothing.
template <class AnyModel>
ForwardPass<StageActivations<AnyModel>> forward_step(const PipelineStage<AnyModel>& stage,
                                                     const MicroBatchOf<AnyModel>& micro_batch,
                                                     const Tensor3& input,  // (B, T', C)
                                                     AnyModel& gradient) {
    const auto& [input_ids, targets, inputs, share] = micro_batch;
    auto [output, layers] =
        layers_forward(stage.part.layers,
                       stage.is_first() ? embed_tokens(stage.part, input_ids) : input, inputs);
    if (!stage.is_last()) return {std::move(output), {std::move(layers), 0, {}}};
    auto [loss, hidden_gradient] =
        head_forward_backward(stage.part, output, targets, share, gradient);
    return {{}, {std::move(layers), double(share) * loss, std::move(hidden_gradient)}};
}

// Its backward pass: from the gradient that the next stage sent to that for the stage before.
// Returns the latter, (B, T', C).
template <class AnyModel>
Tensor3 backward_step(const PipelineStage<AnyModel>& stage,
                      const MicroBatchOf<AnyModel>& micro_batch,
                      const StageActivations<AnyModel>& saved,
                      const Tensor3& output_gradient,  // (B, T', C)
                      AnyModel& gradient) {
    Tensor3 input_gradient = layers_backward(
        stage.part.layers, micro_batch.inputs, saved.layers,
        stage.is_last() ? saved.head_gradient : output_gradient, gradient.layers);
    if (stage.is_first())
        embed_tokens_backward(stage.part, micro_batch.input_ids, input_gradient, gradient);
    return input_gradient;
}

}  // namespace

template <class AnyModel>
double run_schedule(const PipelineStage<AnyModel>& stage, const StageSchedule& schedule,
                    const MicroBatchesOf<AnyModel>& micro_batches, AnyModel& gradient) {
    Communicator& ranks = *stage.ranks;
    std::map<std::size_t, StageActivations<AnyModel>> in_flight;
    double loss = 0;
    Tensor3 input, output;
    Neighbor to;
    for (const StageAction& action : schedule) {
        const MicroBatchOf<AnyModel>& micro_batch = micro_batches.at(action.micro_batch);
        input.resize(shape_of_states(stage.part, micro_batch.input_ids));
        exchange(ranks, output, to, input, source_of(action, ranks));
        if (action.pass == Pass::forward) {
            auto [hidden_states, saved] = forward_step(stage, micro_batch, input, gradient);
            output = std::move(hidden_states);
            loss += saved.loss;
            in_flight[action.micro_batch] = std::move(saved);
        } else {
            const auto saved = in_flight.extract(action.micro_batch);
            output = backward_step(stage, micro_batch, saved.mapped(), input, gradient);
        }
        to = destination_of(action, ranks);
    }
    exchange(ranks, output, to, input, std::nullopt);
    return loss;
}

template <class AnyModel>
void sum_tied_gradients(const PipelineStage<AnyModel>& stage, AnyModel& gradient) {
    // All ranks must call split, also those that have no part in the sum.
    const bool is_at_end = stage.is_first() || stage.is_last();
    const std::unique_ptr<Communicator> ends = stage.ranks->split(is_at_end ? 0 : 1);
    const bool is_tied = !stage.part.lm_head;
    if (!is_tied || !is_at_end || stage.ranks->size() == 1) return;
    ends->all_reduce(std::span(gradient.embed_tokens.data(), gradient.embed_tokens.size()));
}

template PipelineStage<Model> pipeline_stage(const Model&, Communicator&);
template double run_schedule(const PipelineStage<Model>&, const StageSchedule&,
                             const MicroBatchesOf<Model>&, Model&);
template void sum_tied_gradients(const PipelineStage<Model>&, Model&);
template PipelineStage<TensorParallelModel> pipeline_stage(const TensorParallelModel&,
                                                           Communicator&);
template double run_schedule(const PipelineStage<TensorParallelModel>&, const StageSchedule&,
                             const MicroBatchesOf<TensorParallelModel>&, TensorParallelModel&);
template void sum_tied_gradients(const PipelineStage<TensorParallelModel>&,
                                 TensorParallelModel&);
using RingModel = TensorParallelModelWith<RingAttention>;
template PipelineStage<RingModel> pipeline_stage(const RingModel&, Communicator&);
template double run_schedule(const PipelineStage<RingModel>&, const StageSchedule&,
                             const MicroBatchesOf<RingModel>&, RingModel&);
template void sum_tied_gradients(const PipelineStage<RingModel>&, RingModel&);

}  // namespace llm
