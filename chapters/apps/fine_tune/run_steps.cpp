#include "chapters/apps/fine_tune/run_steps.hpp"

#include <algorithm>

#include "chapters/apps/fine_tune/reports.hpp"
#include "chapters/apps/train/save_schedule.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/hash.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::fine_tune {
using namespace runs;

namespace {

std::uint64_t checksum(const Model& model) {
    std::uint64_t hash = fnv1a("");
    for (const auto& [name, shape, values] : named_parameters(model))
        hash = fnv1a({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, hash);
    return hash;
}

void merge_adapter(FineTuner& tuner) {
    if (tuner.lora) merge_lora(tuner.lora->base, tuner.lora->adapter, tuner.model);
}

std::vector<Parameter> trained_parameters(FineTuner& tuner) {
    return tuner.lora ? named_parameters(tuner.lora->adapter) : named_parameters(tuner.model);
}

// What is trained, and its moving averages, as parameters with one axis.
std::vector<Parameter> state_tensors(FineTuner& tuner) {
    const std::vector<Parameter> parameters = trained_parameters(tuner);
    std::vector<Parameter> tensors;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const auto& [name, shape, values] = parameters[p];
        tensors.push_back({name, {values.size()}, values});
        tensors.push_back({name + ".exp_avg", {values.size()}, tuner.optimizer.exp_avg[p]});
        tensors.push_back(
            {name + ".exp_avg_sq", {values.size()}, tuner.optimizer.exp_avg_sq[p]});
    }
    return tensors;
}

// The state before a step, which is restored if the step is interrupted.
struct StateBeforeStep {
    Generator generator;
    std::size_t step_count;
    std::vector<std::vector<Real>> tensors;  // of GRPO, which updates several times in a step
};
StateBeforeStep state_before_step(FineTuningRun& run) {
    StateBeforeStep state{run.generator, run.tuner.optimizer.step_count, {}};
    if (run.arguments.method == "grpo")
        for (const Parameter& tensor : state_tensors(run.tuner))
            state.tensors.emplace_back(tensor.values.begin(), tensor.values.end());
    return state;
}

void restore(FineTuningRun& run, const StateBeforeStep& state) {
    run.generator = state.generator;
    run.tuner.optimizer.step_count = state.step_count;
    const std::vector<Parameter> tensors = state_tensors(run.tuner);
    for (std::size_t i = 0; i < state.tensors.size(); ++i)
        std::copy(state.tensors[i].begin(), state.tensors[i].end(), tensors[i].values.begin());
    merge_adapter(run.tuner);
}

void write_checkpoint(FineTuningRun& run, const Reports& reports) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : state_tensors(run.tuner))
        tensors.push_back({name, shape, values});
    tensors.push_back({"reports", {reports.history().size()}, reports.history()});
    write_run(checkpoint_file(run.arguments), tensors, run.settings,
              {{"generator", run.generator.state()},
               {"step_count", to_text(run.tuner.optimizer.step_count)}});
}

void read_checkpoint(FineTuningRun& run, Reports& reports) {
    const std::string path = checkpoint_file(run.arguments);
    const SafeTensors file = open_run(path, run.settings);
    FineTuner& tuner = run.tuner;
    for (const Parameter& tensor : state_tensors(tuner))
        file.read(tensor.name, tensor.shape, tensor.values);
    merge_adapter(tuner);
    std::vector<Real> history(file.size_of("reports"));
    file.read("reports", std::array{history.size()}, history);
    reports.replay(history);
    tuner.optimizer.step_count = saved_integer(path, "step_count");
    run.generator.set_state(file.metadata().at("generator"));
}

}  // namespace

std::string checkpoint_file(const FineTuningArguments& arguments) {
    return arguments.folder + "/run.safetensors";
}

std::vector<Setting> settings_of(const FineTuningArguments& arguments, std::uint32_t seed,
                                 const Model& model) {
    return {{"--method", arguments.method},
            {"--task", arguments.task},
            {"--full", std::size_t(arguments.full)},
            {"--loss-on-everything", std::size_t(arguments.loss_on_everything)},
            {"--steps", arguments.steps},
            {"--batch-size", arguments.batch_size},
            {"--learning-rate", arguments.learning_rate},
            {"--lora-r", arguments.lora_r},
            {"--lora-alpha", arguments.lora_alpha},
            {"--beta", arguments.beta},
            {"--rpo-alpha", arguments.rpo_alpha},
            {"--loss-type", arguments.loss_type},
            {"--group-size", arguments.group_size},
            {"--max-new-tokens", arguments.max_new_tokens},
            {"--seed", seed},
            {"the model", checksum(model)},
            {"the training data", fnv1a(read_text(arguments.train))}};
}

std::vector<Line> run_steps(FineTuningRun& run, const std::vector<std::string>& names,
                            const TakeStep& take_step) {
    Reports reports(run.steps, names);
    run.tuner.optimizer.reset(trained_parameters(run.tuner));
    if (run.arguments.resume) {
        read_checkpoint(run, reports);
        show("completed steps", reports.num_steps_done());
    }
    SaveSchedule schedule{run.arguments.save_steps};
    const auto save = [&] { schedule.save([&] { write_checkpoint(run, reports); }); };
    save();
    while (reports.num_steps_done() < run.steps) {
        const StateBeforeStep before = state_before_step(run);
        try {
            reports.end_step(take_step(reports.num_steps_done()));
        } catch (const Interrupted&) {
            restore(run, before);
            save();
            throw;
        }
        if (schedule.is_due(reports.num_steps_done())) save();
    }
    return reports.lines();
}

}  // namespace llm::fine_tune
