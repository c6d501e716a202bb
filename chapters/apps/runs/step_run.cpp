#include "chapters/apps/runs/step_run.hpp"

#include <algorithm>

#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::runs {
namespace {

constexpr std::size_t num_reports = 8;

// A line for each name: the averages of its numbers over the steps up to each of `ends`, since
// the one before. A step has one number for each name.
std::vector<Line> averages(const std::vector<std::string>& names,
                           const std::vector<Real>& numbers,
                           const std::vector<std::size_t>& ends) {
    std::vector<Line> lines;
    for (std::size_t i = 0; i < names.size(); ++i) {
        Line line{names[i], {}, {}};
        std::size_t begin = 0;
        for (const std::size_t end : ends) {
            double sum = 0;
            for (std::size_t step = begin; step < end; ++step)
                sum += double(numbers[step * names.size() + i]);
            line.x.push_back(double(end));
            line.y.push_back(sum / double(end - begin));
            begin = end;
        }
        lines.push_back(line);
    }
    return lines;
}

// The reports of a run that has taken so many steps, without a deadline.
std::vector<std::size_t> reported_steps(std::size_t num_done, std::size_t num_steps) {
    std::vector<std::size_t> ends;
    for (std::size_t step = 1; step <= num_done; ++step)
        if (is_report_step(step, num_steps, num_reports)) ends.push_back(step);
    return ends;
}

// A schedule that ends with another step, as that of ./learn train.
LRSchedule with_max_steps(LRSchedule schedule, std::size_t max_steps) {
    if (schedule.max_steps == max_steps) return schedule;
    schedule.max_steps = max_steps;
    schedule.warmup_steps = std::min<std::size_t>(100, max_steps / 10);
    return schedule;
}

// What is trained, and its moving averages, as parameters with one axis.
std::vector<Parameter> state_tensors(StepRun& run) {
    std::vector<Parameter> tensors;
    for (std::size_t p = 0; p < run.parameters.size(); ++p) {
        const auto& [name, shape, values] = run.parameters[p];
        tensors.push_back({name, {values.size()}, values});
        tensors.push_back({name + ".exp_avg", {values.size()}, run.optimizer.exp_avg[p]});
        tensors.push_back({name + ".exp_avg_sq", {values.size()}, run.optimizer.exp_avg_sq[p]});
    }
    return tensors;
}

// Takes a step. If it is interrupted, restores the state before it: the generator and, if it
// updates several times, all tensors.
std::vector<double> complete_step(StepRun& run, const TakeStep& take_step, Real learning_rate) {
    const Generator generator = run.generator;
    const std::size_t step_count = run.optimizer.step_count;
    std::vector<std::vector<Real>> saved;
    if (run.has_inner_steps)
        for (const Parameter& tensor : state_tensors(run))
            saved.emplace_back(tensor.values.begin(), tensor.values.end());
    try {
        return take_step(learning_rate);
    } catch (const Interrupted&) {
        run.generator = generator;
        run.optimizer.step_count = step_count;
        const std::vector<Parameter> tensors = state_tensors(run);
        for (std::size_t i = 0; i < saved.size(); ++i)
            std::copy(saved[i].begin(), saved[i].end(), tensors[i].values.begin());
        if (run.on_restore) run.on_restore();
        throw;
    }
}

void write_checkpoint(StepRun& run, const std::vector<Real>& reports,
                      const LRSchedule& schedule) {
    if (run.settings.empty()) return;
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : state_tensors(run))
        tensors.push_back({name, shape, values});
    tensors.push_back({"reports", {reports.size()}, reports});
    write_run(run.folder.checkpoint_file(), tensors, run.settings,
              {{"generator", run.generator.state()},
               {"max_steps", to_text(schedule.max_steps)},
               {"step_count", to_text(run.optimizer.step_count)}});
}

// Returns the numbers of the completed steps.
std::vector<Real> read_checkpoint(StepRun& run, LRSchedule& schedule) {
    const SafeTensors file = open_checkpoint(run.folder, run.settings);
    for (const Parameter& tensor : state_tensors(run))
        file.read(tensor.name, tensor.shape, tensor.values);
    if (run.on_restore) run.on_restore();
    const std::string path = run.folder.checkpoint_file();
    run.optimizer.step_count = saved_integer(path, "step_count");
    schedule = with_max_steps(schedule, saved_integer(path, "max_steps"));
    run.generator.set_state(file.metadata().at("generator"));
    std::vector<Real> reports(file.size_of("reports"));
    file.read("reports", std::array{reports.size()}, reports);
    return reports;
}

}  // namespace

SafeTensors open_checkpoint(const RunFolder& folder, const std::vector<Setting>& settings) {
    const std::string file = folder.checkpoint_file();
    open_run(file, {settings.front()});  // other methods have other settings
    return open_run(file, settings);
}

void check_new(const std::string& file) {
    if (is_file(file)) throw FileError(file + ": it exists, and is not overwritten");
}

void reject_existing_result(const RunFolder& folder) {
    if (folder.resume) return;  // replaces the result of this run, if it was stopped
    if (folder.has_checkpoint()) reject_checkpoint(folder);
    for (const char* name : {"/adapter_config.json", "/adapter_model.safetensors",
                             "/config.json", "/model.safetensors"})
        check_new(folder.path + name);
}

std::vector<Line> run_steps(StepRun& run, LRSchedule schedule,
                            const std::vector<std::string>& names, const TakeStep& take_step,
                            const std::function<void()>& report) {
    run.optimizer.reset(run.parameters);
    std::vector<Real> numbers;
    if (run.folder.resume) numbers = read_checkpoint(run, schedule);
    const auto num_done = [&] { return numbers.size() / names.size(); };
    const bool is_planned = run.deadline && num_done() == 0;
    if (run.folder.resume) show("completed steps", num_done());
    std::vector<std::size_t> ends = reported_steps(num_done(), schedule.max_steps);
    ResumableRun resumable({num_done(), schedule.max_steps, num_reports, run.deadline});
    resumable.save_steps = run.folder.save_steps;
    resumable.write_checkpoint = [&] { write_checkpoint(run, numbers, schedule); };
    resumable.report = [&] {
        show_progress("");
        ends.push_back(num_done());
        std::string text = "step " + to_text(num_done()) + ": ";
        for (const Line& line : averages(names, numbers, ends))
            text += line.label + " " + fixed(line.y.back(), 3) + ", ";
        say(text + fixed(resumable.seconds_left(), 0) + " s left");
        if (report) report();
    };
    resumable.train([&] {
        while (!resumable.is_over()) {
            if (is_planned) schedule = with_max_steps(schedule, resumable.last_step());
            const Real rate = learning_rate_at(schedule, num_done());
            for (const double number : complete_step(run, take_step, rate))
                numbers.push_back(static_cast<Real>(number));
            resumable.end_step();
            show_progress("step " + to_text(num_done()) + " of " +
                          to_text(resumable.last_step()));
            resumable.report_and_save();
        }
    });
    return averages(names, numbers, ends);
}

bool train_and_save(const RunFolder& folder, const std::function<void()>& train,
                    const std::function<void()>& save) {
    bool is_stopped = false;
    try {
        train();
    } catch (const Interrupted&) {
        is_stopped = true;
    }
    save();
    if (is_stopped)
        say("Stopped and saved after the last complete step. With --resume, the same command "
            "continues the run.");
    else
        remove_file(folder.checkpoint_file());
    return !is_stopped;
}

}  // namespace llm::runs
