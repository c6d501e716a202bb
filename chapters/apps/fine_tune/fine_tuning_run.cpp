#include "chapters/apps/fine_tune/fine_tuning_run.hpp"

#include <algorithm>

#include "common/files/unicode.hpp"

namespace llm::fine_tune {
namespace {

std::vector<Parameter> trained_parameters(FineTuner& tuner) {
    return tuner.lora ? named_parameters(tuner.lora->adapter) : named_parameters(tuner.model);
}

void merge_adapter(FineTuner& tuner) {
    if (tuner.lora) merge_lora(tuner.lora->base, tuner.lora->adapter, tuner.model);
}

}  // namespace

LRSchedule schedule_of(const Steps& steps) {
    const Real rate = Real(steps.learning_rate);
    return {rate, rate / 10, std::min<std::size_t>(100, steps.count / 20), steps.count};
}

std::vector<Setting> settings_of(const FineTuningRun& run, const std::string& method,
                                 const Steps& steps) {
    const FineTuningTask& task = run.task;
    return {{"--method", method},
            {"--task", task.task},
            {"--full", std::size_t(task.full)},
            {"--steps", steps.count},
            {"--batch-size", steps.batch_size},
            {"--learning-rate", steps.learning_rate},
            {"--lora-r", task.lora_r},
            {"--lora-alpha", task.lora_alpha},
            {"--max-new-tokens", task.max_new_tokens},
            {"--seed", task.seed},
            {"the model", runs::checksum(named_parameters(run.tuner.model))},
            {"the training data", fnv1a(read_text(task.train))}};
}

std::vector<Line> run_steps(FineTuningRun& run, const Steps& steps,
                            const std::vector<std::string>& names,
                            const runs::TakeStep& take_step) {
    const bool has_inner_steps = std::holds_alternative<Grpo>(run.task.method);
    runs::StepRun state{run.task.folder,     run.settings,  trained_parameters(run.tuner),
                        run.tuner.optimizer, run.generator, [&] { merge_adapter(run.tuner); },
                        has_inner_steps};
    return runs::run_steps(state, schedule_of(steps), names, take_step);
}

}  // namespace llm::fine_tune
