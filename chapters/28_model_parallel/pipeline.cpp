#include "chapters/28_model_parallel/pipeline.hpp"

#include <algorithm>

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
    // Until the first gradient arrives, forward passes alone; then one of each; then the rest.
    const std::size_t m = num_micro_batches;
    const std::size_t num_ahead = std::min(m, num_stages - 1 - stage);
    StageSchedule schedule;
    for (std::size_t i = 0; i < num_ahead; ++i) schedule.push_back({Pass::forward, i});
    for (std::size_t i = 0; i < m; ++i) {
        if (num_ahead + i < m) schedule.push_back({Pass::forward, num_ahead + i});
        schedule.push_back({Pass::backward, i});
    }
    return schedule;
}

std::vector<std::vector<TimedAction>> run_times(const std::vector<StageSchedule>& schedules,
                                                double forward_time, double backward_time) {
    const std::size_t p = schedules.size();
    std::vector<std::vector<TimedAction>> times(p);
    std::map<std::pair<std::size_t, std::size_t>, double> forward_end, backward_end;
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (std::size_t stage = 0; stage < p; ++stage) {
            if (times[stage].size() == schedules[stage].size()) continue;
            const StageAction action = schedules[stage][times[stage].size()];
            const bool is_forward = action.pass == Pass::forward;

            // Its input is that of the stage before or after; of the last stage, its own.
            const auto& ends = is_forward ? forward_end : backward_end;
            double begin = times[stage].empty() ? 0 : times[stage].back().end;
            if (is_forward ? stage > 0 : stage + 1 < p) {
                const auto input =
                    ends.find({is_forward ? stage - 1 : stage + 1, action.micro_batch});
                if (input == ends.end()) continue;
                begin = std::max(begin, input->second);
            }
            const double end = begin + (is_forward ? forward_time : backward_time);
            times[stage].push_back({action, begin, end});
            (is_forward ? forward_end : backward_end)[{stage, action.micro_batch}] = end;
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

namespace {

// The stage from which an action gets its input, or to which it sends its output, if any.
using Neighbor = std::optional<std::size_t>;
Neighbor after(const Communicator& ranks) {
    if (ranks.rank() + 1 == ranks.size()) return std::nullopt;
    return ranks.rank() + 1;
}
Neighbor before(const Communicator& ranks) {
    if (ranks.rank() == 0) return std::nullopt;
    return ranks.rank() - 1;
}

// Sends the output of an action and receives the input of the next one; from the same neighbor
// both at once, because it may do the same.
void exchange(Communicator& ranks, const Tensor3& output, Neighbor to, Tensor3& input,
              Neighbor from) {
    const std::span<const Real> sent(output.data(), output.size());
    const std::span<Real> received(input.data(), input.size());
    if (to && to == from) return ranks.send_receive<Real>(sent, *to, received, *from);
    if (to) ranks.send<Real>(sent, *to);
    if (from) ranks.receive<Real>(received, *from);
}

// The embedding and the head of a whole model, as vocabulary_parallel.hpp has them of a part.
Tensor3 embed_tokens(const Model& model, const IdMatrix& input_ids) {
    return model.embed(input_ids);
}
void embed_tokens_backward(const Model& /*model*/, const IdMatrix& input_ids,
                           const Tensor3& output_gradient, Model& gradient) {
    embedding_backward(input_ids, output_gradient, gradient.embed_tokens);
}
HeadLoss head_forward_backward(const Model& model, const Tensor3& last_hidden_state,
                               const IdMatrix& targets, Real share, Model& gradient) {
    const Tensor3 normalized = model.norm(last_hidden_state);
    const Tensor3 logits = lm_head(model.head(), normalized);
    Matrix& head_gradient = model.lm_head ? *gradient.lm_head : gradient.embed_tokens;
    const Tensor3 normalized_gradient =
        lm_head_backward(model.head(), normalized,
                         cross_entropy_backward(logits, targets) * share, head_gradient);
    return {cross_entropy(logits, targets),
            norm_backward(model.norm, last_hidden_state, normalized_gradient, gradient.norm)};
}

// The shape of what neighbors send: (B, T, C), or this rank's part of the tokens.
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

}  // namespace

template <class AnyModel>
PipelineStage<AnyModel> pipeline_stage(const AnyModel& model, Communicator& ranks) {
    require(ranks.size() <= model.layers.size(), "pipeline: {} stages for {} layers",
            ranks.size(), model.layers.size());
    PipelineStage<AnyModel> stage{model, &ranks};
    const auto [begin, size] = part_of(model.layers.size(), ranks.size(), ranks.rank());
    const auto first = model.layers.begin() + static_cast<std::ptrdiff_t>(begin);
    stage.part.layers = {first, first + static_cast<std::ptrdiff_t>(size)};
    if (!stage.is_first() && !(stage.is_last() && !model.lm_head)) stage.part.embed_tokens = {};
    if (!stage.is_last()) {
        if (stage.part.lm_head) stage.part.lm_head = Matrix{};
        stage.part.norm.weight = {};
    }
    return stage;
}

template <class AnyModel>
double run_schedule(const PipelineStage<AnyModel>& stage, const StageSchedule& schedule,
                    const MicroBatchesOf<AnyModel>& micro_batches, AnyModel& gradient) {
    using Layer = typename decltype(stage.part.layers)::value_type;
    const AnyModel& part = stage.part;
    std::map<std::size_t, MicroBatchActivations<Layer>> in_flight;
    double loss = 0;

    // The output for the next stage, or the gradient for the previous one.
    const auto run = [&](const StageAction& action, const Tensor3& input) -> Tensor3 {
        const auto& [input_ids, targets, inputs, share] = micro_batches.at(action.micro_batch);
        if (action.pass == Pass::backward) {
            const MicroBatchActivations<Layer> kept =
                std::move(in_flight.extract(action.micro_batch).mapped());
            const Tensor3 input_gradient = layers_backward(
                part.layers, inputs, kept.layers,
                stage.is_last() ? kept.output_gradient : input, gradient.layers);
            if (stage.is_first())
                embed_tokens_backward(part, input_ids, input_gradient, gradient);
            return input_gradient;
        }
        auto [output, saved] = layers_forward(
            part.layers, stage.is_first() ? embed_tokens(part, input_ids) : input, inputs);
        MicroBatchActivations<Layer>& kept = in_flight[action.micro_batch];
        kept.layers = std::move(saved);
        if (!stage.is_last()) return std::move(output);
        HeadLoss head = head_forward_backward(part, output, targets, share, gradient);
        loss += double(share) * head.loss;
        kept.output_gradient = std::move(head.hidden_gradient);
        return {};
    };

    // Where the input of an action comes from, and its output goes to.
    const auto source = [&](const StageAction& action) {
        return action.pass == Pass::forward ? before(*stage.ranks) : after(*stage.ranks);
    };
    const auto destination = [&](const StageAction& action) {
        return action.pass == Pass::forward ? after(*stage.ranks) : before(*stage.ranks);
    };
    Tensor3 output, input;
    Neighbor to;
    for (const StageAction& action : schedule) {
        input.resize(shape_of_states(part, micro_batches[action.micro_batch].input_ids));
        exchange(*stage.ranks, output, to, input, source(action));
        output = run(action, input);
        to = destination(action);
    }
    exchange(*stage.ranks, output, to, input, std::nullopt);
    return loss;
}

template <class AnyModel>
void sum_tied_gradients(const PipelineStage<AnyModel>& stage, AnyModel& gradient) {
    const bool has_matrix = stage.is_first() || stage.is_last();
    const std::unique_ptr<Communicator> ends = stage.ranks->split(has_matrix ? 0 : 1);
    if (stage.part.lm_head || !has_matrix || stage.ranks->size() == 1) return;
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
