#include "chapters/apps/fine_tune/fine_tuning_run.hpp"

#include <algorithm>

#include "chapters/apps/runs/resumable_run.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/hash.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::fine_tune {
using namespace runs;

namespace {

constexpr std::size_t num_reports = 8;

// A line for each name: the averages of its numbers over the steps since the last report. A
// step has one number for each name.
std::vector<Line> averages(const std::vector<std::string>& names,
                           const std::vector<Real>& numbers, std::size_t num_steps) {
    std::vector<Line> lines;
    for (const std::string& name : names) lines.push_back({name, {}, {}});
    std::vector<double> sums(names.size());
    std::size_t reported = 0;
    for (std::size_t n = 0; n < numbers.size(); ++n) {
        const std::size_t i = n % names.size(), step = n / names.size() + 1;
        sums[i] += double(numbers[n]);
        if (!is_report_step(step, num_steps, num_reports)) continue;
        lines[i].x.push_back(double(step));
        lines[i].y.push_back(std::exchange(sums[i], 0) / double(step - reported));
        if (i + 1 == names.size()) reported = step;
    }
    return lines;
}

std::uint64_t checksum(const Model& model) {
    std::uint64_t hash = fnv1a("");
    for (const auto& [name, shape, values] : named_parameters(model))
        hash = fnv1a(std::as_bytes(values), hash);
    return hash;
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

void merge_adapter(FineTuner& tuner) {
    if (tuner.lora) merge_lora(tuner.lora->base, tuner.lora->adapter, tuner.model);
}

// Takes a step. If it is interrupted, restores the state before it: the generator and, of GRPO,
// which updates several times in a step, all tensors.
std::vector<double> complete_step(FineTuningRun& run, const TakeStep& take_step,
                                  Real learning_rate) {
    const Generator generator = run.generator;
    const std::size_t step_count = run.tuner.optimizer.step_count;
    std::vector<std::vector<Real>> saved;
    if (std::holds_alternative<Grpo>(run.task.method))
        for (const Parameter& tensor : state_tensors(run.tuner))
            saved.emplace_back(tensor.values.begin(), tensor.values.end());
    try {
        return take_step(learning_rate);
    } catch (const Interrupted&) {
        run.generator = generator;
        run.tuner.optimizer.step_count = step_count;
        const std::vector<Parameter> tensors = state_tensors(run.tuner);
        for (std::size_t i = 0; i < saved.size(); ++i)
            std::copy(saved[i].begin(), saved[i].end(), tensors[i].values.begin());
        merge_adapter(run.tuner);
        throw;
    }
}

void write_checkpoint(FineTuningRun& run, const std::vector<Real>& reports) {
    if (run.settings.empty()) return;
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : state_tensors(run.tuner))
        tensors.push_back({name, shape, values});
    tensors.push_back({"reports", {reports.size()}, reports});
    write_run(run.task.folder.checkpoint_file(), tensors, run.settings,
              {{"generator", run.generator.state()},
               {"step_count", to_text(run.tuner.optimizer.step_count)}});
}

// Returns the numbers of the completed steps.
std::vector<Real> read_checkpoint(FineTuningRun& run) {
    const SafeTensors file = open_checkpoint(run);
    FineTuner& tuner = run.tuner;
    for (const Parameter& tensor : state_tensors(tuner))
        file.read(tensor.name, tensor.shape, tensor.values);
    merge_adapter(tuner);
    tuner.optimizer.step_count = saved_integer(run.task.folder.checkpoint_file(), "step_count");
    run.generator.set_state(file.metadata().at("generator"));
    std::vector<Real> reports(file.size_of("reports"));
    file.read("reports", std::array{reports.size()}, reports);
    return reports;
}

LRSchedule schedule_of(const Steps& steps) {
    const Real rate = Real(steps.learning_rate);
    return {rate, rate / 10, std::min<std::size_t>(100, steps.count / 20), steps.count};
}

}  // namespace

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
            {"the model", checksum(run.tuner.model)},
            {"the training data", fnv1a(read_text(task.train))}};
}

SafeTensors open_checkpoint(const FineTuningRun& run) {
    const std::string file = run.task.folder.checkpoint_file();
    open_run(file, {run.settings.front()});  // other methods have other settings
    return open_run(file, run.settings);
}

std::vector<Line> run_steps(FineTuningRun& run, const Steps& steps,
                            const std::vector<std::string>& names, const TakeStep& take_step) {
    run.tuner.optimizer.reset(trained_parameters(run.tuner));
    std::vector<Real> numbers;
    if (run.task.folder.resume) numbers = read_checkpoint(run);
    const auto num_done = [&] { return numbers.size() / names.size(); };
    if (run.task.folder.resume) show("completed steps", num_done());
    ResumableRun resumable({num_done(), steps.count, num_reports});
    resumable.save_steps = run.task.folder.save_steps;
    resumable.write_checkpoint = [&] { write_checkpoint(run, numbers); };
    resumable.report = [&] {
        show_progress("");
        std::string text = "step " + to_text(num_done()) + ": ";
        for (const Line& line : averages(names, numbers, steps.count))
            text += line.label + " " + fixed(line.y.back(), 3) + ", ";
        say(text + fixed(resumable.seconds_left(), 0) + " s left");
    };
    resumable.train([&] {
        while (!resumable.is_over()) {
            const Real rate = learning_rate_at(schedule_of(steps), num_done());
            for (const double number : complete_step(run, take_step, rate))
                numbers.push_back(static_cast<Real>(number));
            resumable.end_step();
            show_progress("step " + to_text(num_done()) + " of " + to_text(steps.count));
            resumable.report_and_save();
        }
    });
    return averages(names, numbers, steps.count);
}

}  // namespace llm::fine_tune
