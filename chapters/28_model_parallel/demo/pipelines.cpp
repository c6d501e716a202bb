#include <cmath>

#include "chapters/24_parallel/demo/small_run.hpp"
#include "chapters/28_model_parallel/demo/model_axes.hpp"
#include "chapters/28_model_parallel/pipeline.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

using AllTimes = std::vector<std::vector<TimedAction>>;

std::vector<StageSchedule> gpipe(std::size_t m, std::size_t p) {
    return std::vector<StageSchedule>(p, gpipe_schedule(m));
}
std::vector<StageSchedule> one_forward_one_backward(std::size_t m, std::size_t p) {
    std::vector<StageSchedule> schedules;
    for (std::size_t stage = 0; stage < p; ++stage)
        schedules.push_back(one_forward_one_backward_schedule(m, p, stage));
    return schedules;
}

// Forward passes as digits, backward passes, which take twice as long, as letters; "." is idle.
void draw(const std::string& name, const AllTimes& times) {
    say(name);
    for (std::size_t stage = 0; stage < times.size(); ++stage) {
        std::string line(std::size_t(std::round(times[0].back().end)), '.');
        for (const auto& [action, begin, end] : times[stage])
            for (auto t = std::size_t(begin); t < std::size_t(end); ++t)
                line[t] = static_cast<char>((action.pass == Pass::forward ? '0' : 'a') +
                                            static_cast<char>(action.micro_batch));
        say("stage " + to_text(stage) + "  " + line);
    }
}

// Micro-batches of one sequence each.
std::vector<MicroBatch> micro_batches_of(const SmallRun& run) {
    const auto [input_ids, targets] = run.batch();
    const auto [batch_size, seq_len] = dims(input_ids);
    std::vector<MicroBatch> result;
    for (std::size_t b = 0; b < batch_size; ++b)
        result.push_back({xt::view(input_ids, xt::range(b, b + 1)),
                          xt::view(targets, xt::range(b, b + 1)),
                          causal_attention_inputs(run.model.config, 1, seq_len),
                          Real(1) / Real(batch_size)});
    return result;
}

// What may go wrong in a step on two stages.
enum class Mistake { none, cleared_between_micro_batches, tied_gradient_not_summed };

struct PipelineResult {
    double loss = 0, embedding_norm = 0, layer_norm = 0;
};
PipelineResult pipeline_step(const SmallRun& run, std::size_t p, const StageSchedule& one_stage,
                             Mistake mistake) {
    PipelineResult result;
    run_ranks(p, [&](Communicator& ranks) {
        const PipelineStage<Model> stage = pipeline_stage(run.model, ranks);
        const std::vector<MicroBatch> micro_batches = micro_batches_of(run);
        Model gradient = zeros_like(stage.part);
        double loss = 0;
        if (mistake == Mistake::cleared_between_micro_batches) {
            for (const MicroBatch& micro_batch : micro_batches) {
                zero_grad(gradient);
                loss += run_schedule(stage, gpipe_schedule(1), {micro_batch}, gradient);
            }
        } else {
            const StageSchedule schedule =
                one_stage.empty()
                    ? one_forward_one_backward_schedule(micro_batches.size(), p, ranks.rank())
                    : one_stage;
            loss = run_schedule(stage, schedule, micro_batches, gradient);
        }
        if (mistake != Mistake::tied_gradient_not_summed) sum_tied_gradients(stage, gradient);
        ranks.all_reduce(std::span(&loss, 1));
        const std::vector<Parameter> own = named_parameters(gradient);
        if (ranks.rank() != 0) return;
        result = {loss, grad_norm({own[0]}), grad_norm({own.begin() + 1, own.end()})};
    });
    return result;
}

}  // namespace

void pipeline_schedules() {
    step("A pipeline of 3 stages and 6 micro-batches: who computes when");
    draw("GPipe", run_times(gpipe(6, 3), 1, 2));
    draw("one forward, one backward", run_times(one_forward_one_backward(6, 3), 1, 2));
    std::vector<TableRow> rows;
    for (const auto& [p, m] : {std::pair(3, 6), std::pair(4, 4), std::pair(4, 16)}) {
        const auto stages = std::size_t(p), count = std::size_t(m);
        const auto one = one_forward_one_backward(count, stages);
        rows.push_back(
            {to_text(p), to_text(m), fixed(bubble(run_times(gpipe(count, stages), 1, 2)), 3),
             fixed(bubble(run_times(one, 1, 2)), 3),
             fixed(double(p - 1) / double(m + p - 1), 3),
             to_text(most_in_flight(gpipe_schedule(count))), to_text(most_in_flight(one[0]))});
    }
    show_table({"p", "m", "idle, GPipe", "1F1B", "formula", "kept, GPipe", "1F1B"}, rows);
}

void one_step_of_a_pipeline(std::uint32_t seed) {
    step("One step of a pipeline: 5 micro-batches, and two mistakes");
    const SmallRun run = small_run(seed);
    const auto row = [&](const std::string& name, const PipelineResult& result) {
        return TableRow{name, fixed(result.loss, 6), fixed(result.embedding_norm, 4),
                        fixed(result.layer_norm, 4)};
    };
    show_table({"gradient", "loss", "norm, embedding", "layer of stage 0"},
               {row("2 stages, GPipe", pipeline_step(run, 2, gpipe_schedule(5), Mistake::none)),
                row("2 stages, 1F1B", pipeline_step(run, 2, {}, Mistake::none)),
                row("wrong: gradient cleared",
                    pipeline_step(run, 2, {}, Mistake::cleared_between_micro_batches)),
                row("wrong: tied gradient not added",
                    pipeline_step(run, 2, {}, Mistake::tied_gradient_not_summed))});
}

}  // namespace llm
