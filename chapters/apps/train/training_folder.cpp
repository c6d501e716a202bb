#include "chapters/apps/train/training_folder.hpp"

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/output/show.hpp"

namespace llm::runs {
namespace {

bool has_model(const RunFolder& folder) { return is_file(folder.path + "/config.json"); }

struct Progress {
    std::size_t global_step, num_steps;
    bool is_finished() const { return global_step >= num_steps; }
};
Progress progress_of(const RunFolder& folder) {
    const std::string file = folder.checkpoint_file();
    return {checkpoint_global_step(file),
            checkpoint_max_steps(file) + checkpoint_extra_steps(file)};
}

// The schedule of a run stays as it was planned. With more --steps, the others are extra steps;
// with fewer, load_checkpoint will reject the checkpoint.
void resume_schedule(TrainingTask& task, const std::string& file) {
    LRSchedule& schedule = task.args.lr_schedule;
    const std::size_t planned = checkpoint_max_steps(file);
    task.args.extra_steps = checkpoint_extra_steps(file);
    if (task.steps_given && schedule.max_steps >= planned)
        task.args.extra_steps = schedule.max_steps - planned;
    if (!task.steps_given || schedule.max_steps >= planned) schedule.max_steps = planned;
    schedule.warmup_steps = checkpoint_warmup_steps(file);
}

}  // namespace

std::string default_folder(const std::string& name, bool resume) {
    RunFolder free{model_folder(name)}, latest = free;
    for (std::size_t number = 2; free.has_checkpoint() || has_model(free); ++number)
        latest = std::exchange(free, {model_folder(name + "_" + to_text(number))});
    const bool is_interrupted = latest.has_checkpoint() && !progress_of(latest).is_finished();
    return resume || is_interrupted ? latest.path : free.path;
}

void open_training_folder(RunFolder& folder, TrainingTask& task) {
    lock_run_folder(folder);
    if (folder.resume) return resume_schedule(task, folder.checkpoint_file());
    if (folder.has_checkpoint()) {
        const Progress progress = progress_of(folder);
        const std::string steps = to_text(progress.global_step);
        reject_checkpoint(folder, progress.is_finished()
                                      ? "all " + steps
                                      : steps + " of " + to_text(progress.num_steps));
    }
    if (has_model(folder))
        throw FileError(folder.path + " holds a model; --folder names another folder");
}

TrainerState start_or_resume(const TrainingTask& task, const Model& model,
                             const RunFolder& folder) {
    TrainerState state = make_trainer_state(model, task.args);
    if (folder.resume)
        load_checkpoint(state, task.args, task.dataset.train, folder.checkpoint_file());
    models::save_tokenizer(task.tokenizer, folder.path + "/tokenizer.json");
    return state;
}

void explain_resumed_run(const TrainerState& state, const TrainingTask& task,
                         bool has_time_limit) {
    const LRSchedule& schedule = task.args.lr_schedule;
    const std::size_t num_steps = task.args.num_steps();
    const bool is_finished = state.global_step >= num_steps;
    if (is_finished && !has_time_limit)
        say("All " + to_text(state.global_step) +
            " steps of this run are done, and nothing is trained. --resume --steps " +
            to_text(2 * state.global_step) + " continues it.");
    else if (is_finished || num_steps > schedule.max_steps)
        say("The schedule of this run ends at step " + to_text(schedule.max_steps) +
            ". Later steps have its last learning rate, " +
            brief(double(schedule.min_learning_rate)) + ".");
}

}  // namespace llm::runs
